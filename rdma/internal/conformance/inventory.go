package conformance

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

func inventory() []Scenario {
	return []Scenario{
		{"devices are listed with their ports and interfaces", func(t *testing.T, m Machine) {
			// One of another namespace with the name of ours isn't ours.
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, link1, link0, netip.MustParsePrefix("10.0.0.71/24"))
			m.AddMACVLAN(t, "", "child0", link0, netip.MustParsePrefix("10.0.0.72/24"))
			devices, err := m.Host().Devices(nil)
			if err != nil {
				t.Fatal(err)
			}
			port := func(interfaces ...string) []rdma.Port {
				return []rdma.Port{{Number: 1, LinkLayer: rdma.LinkLayerEthernet, State: rdma.PortActive, Interfaces: interfaces}}
			}
			want := []rdma.Device{
				{Name: device0, NUMANode: -1, Ports: port("child0", link0)},
				{Name: device1, NUMANode: -1, Ports: port(link1)},
			}
			opts := cmp.Options{
				cmpopts.IgnoreFields(rdma.Device{}, "NodeGUID", "UVerbs"),
				cmpopts.IgnoreFields(rdma.Port{}, "GIDs", "PKeys"),
			}
			if diff := cmp.Diff(want, devices, opts); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			for _, d := range devices {
				if len(d.NodeGUID) != len("0011:2233:4455:6677") || d.NodeGUID == "0000:0000:0000:0000" {
					t.Errorf("device %s: got node GUID %q, want four groups of four digits", d.Name, d.NodeGUID)
				}
			}
		}},
		{"ports are listed with their GIDs and P_Keys", func(t *testing.T, m Machine) {
			devices, err := m.Host().Devices(nil)
			if err != nil || len(devices) == 0 {
				t.Fatalf("got devices %+v, error %v", devices, err)
			}
			port := devices[0].Ports[0]
			for _, addr := range []string{"::ffff:10.0.0.2", "fd00::2"} {
				if !slices.ContainsFunc(port.GIDs, func(g rdma.GID) bool {
					return g.GID == netip.MustParseAddr(addr) && g.Type == rdma.RoCEv2 && g.Interface == link0
				}) {
					t.Errorf("got GIDs %+v, want %s of RoCE v2 on %s", port.GIDs, addr, link0)
				}
			}
			if !slices.Equal(port.PKeys, []uint16{0xffff}) {
				t.Errorf("got P_Keys %#x, want the default one alone", port.PKeys)
			}
		}},
		{"interfaces are those that rdma_cm can bind to", func(t *testing.T, m Machine) {
			m.AddPlain(t, "", "plain0", netip.MustParsePrefix("10.9.0.1/24"))
			interfaces, err := m.Host().Interfaces(nil)
			if err != nil {
				t.Fatal(err)
			}
			want := []rdma.Interface{
				{
					Name: link0, Device: device0, Port: 1, LinkLayer: rdma.LinkLayerEthernet, PKey: 0xffff,
					Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fd00::2/64")},
				},
				{
					Name: link1, Device: device1, Port: 1, LinkLayer: rdma.LinkLayerEthernet, PKey: 0xffff,
					Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.3/24"), netip.MustParsePrefix("fd00::3/64")},
				},
			}
			opts := cmp.Options{
				cmpopts.IgnoreFields(rdma.Interface{}, "Index"),
				cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
			}
			if diff := cmp.Diff(want, interfaces, opts); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
			names, err := m.Host().LinkNames(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"lo", link0, link1, "plain0"} {
				if !slices.Contains(names, name) {
					t.Errorf("got links %v, want %s among them", names, name)
				}
			}
		}},
	}
}
