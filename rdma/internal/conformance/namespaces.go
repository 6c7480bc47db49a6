package conformance

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// openNetNS opens a namespace for the time of the test.
func openNetNS(t *testing.T, m Machine, path string) *rdma.NetNS {
	t.Helper()
	ns, err := m.Host().OpenNetNS(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Errorf("close the namespace: %v", err)
		}
	})
	return ns
}

// namespaces has what holds of network namespaces: a pod's, for instance.
func namespaces() []Scenario {
	group := netip.MustParseAddr("239.1.8.7")
	prefix := netip.MustParsePrefix("10.0.0.51/24")
	return []Scenario{
		{"a macvlan in a namespace joins there and nowhere else", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			ns := openNetNS(t, m, path)
			ch := OpenChannel(t, m)
			id := bindIn(t, ch, ns, prefix.Addr())
			// The id keeps to its namespace after the handle is closed.
			if err := ns.Close(); err != nil {
				t.Fatal(err)
			}
			e := Join(t, ch, id, group, rdma.JoinOptions{})
			if want := netip.MustParseAddr("::ffff:10.0.0.51"); e.Params.GID != want || e.Params.Device != device0 {
				t.Errorf("got GID %v of device %s, want %v of %s", e.Params.GID, e.Params.Device, want, device0)
			}
			wantIGMP(t, m, path, "net1", group, 1)
			wantIGMP(t, m, "", link0, group, 0)
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, path, "net1", group, 0)
		}},
		{"an address of another namespace can't be bound to", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			ns := openNetNS(t, m, path)
			ch := OpenChannel(t, m)
			id, err := ch.NewID(nil, rdma.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Bind(prefix.Addr()), syscall.EADDRNOTAVAIL, "bind", "10.0.0.51")
			if id, err = ch.NewID(ns, rdma.PortSpaceUDP); err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Bind(addr0()), syscall.EADDRNOTAVAIL, "bind", "10.0.0.2")
		}},
		{"errors in a namespace name its interface", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			ch := OpenChannel(t, m)
			id := bindIn(t, ch, openNetNS(t, m, path), prefix.Addr())
			wantErrno(t, id.Leave(group), syscall.EADDRNOTAVAIL, "leave", group.String(), "net1", "10.0.0.51")
		}},
		{"a namespace's interfaces are listed, RDMA-capable ones apart", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link1, prefix)
			m.AddPlain(t, path, "eth0", netip.MustParsePrefix("10.9.0.1/24"))
			ns := openNetNS(t, m, path)
			interfaces, err := m.Host().Interfaces(ns)
			if err != nil {
				t.Fatal(err)
			}
			if len(interfaces) != 1 {
				t.Fatalf("got %+v, want net1 alone", interfaces)
			}
			got := interfaces[0]
			if got.Name != "net1" || got.Device != device1 || got.Port != 1 || got.LinkLayer != rdma.LinkLayerEthernet ||
				!slices.Equal(got.Addrs, []netip.Prefix{prefix}) || got.Index == 0 {
				t.Errorf("got %+v, want net1 with %v on %s port 1", got, prefix, device1)
			}
			names, err := m.Host().LinkNames(ns)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(names)
			if want := []string{"eth0", "lo", "net1"}; !slices.Equal(names, want) {
				t.Errorf("got links %v, want %v", names, want)
			}
		}},
		{"a namespace that is closed or doesn't exist is told", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			_, err := m.Host().OpenNetNS(path + "-missing")
			wantErrno(t, err, syscall.ENOENT, path+"-missing")
			ns := openNetNS(t, m, path)
			if err := ns.Close(); err != nil {
				t.Fatal(err)
			}
			if err := ns.Close(); err != nil {
				t.Errorf("closing the namespace a second time: %v", err)
			}
			if _, err := m.Host().Interfaces(ns); !errors.Is(err, net.ErrClosed) {
				t.Errorf("interfaces of a closed namespace: got error %v, want net.ErrClosed", err)
			}
			ch := OpenChannel(t, m)
			if _, err := ch.NewID(ns, rdma.PortSpaceUDP); !errors.Is(err, net.ErrClosed) {
				t.Errorf("id in a closed namespace: got error %v, want net.ErrClosed", err)
			}
		}},
	}
}
