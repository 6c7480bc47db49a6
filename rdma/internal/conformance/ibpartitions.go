package conformance

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// ibPartitions has what holds of P_Keys and of IPoIB children, a pod's for
// instance.
func ibPartitions() []ibScenario {
	group := netip.MustParseAddr("239.3.8.7")
	mgid, _ := rdma.MapMGID(group, rdma.PortSpaceUDP, partition, 2)
	child := netip.MustParsePrefix("10.1.1.7/24")
	return []ibScenario{
		{"a child in a namespace joins in its own partition", func(t *testing.T, m InfiniBandMachine) {
			path := m.AddNetNS(t)
			m.Node().AddIPoIBChild(path, "net1", ipoib0, partition, child)
			ch := OpenChannel(t, m)
			id := bindAs(t, ch, openNetNS(t, m, path), rdma.PortSpaceUDP, child.Addr())
			e := Join(t, ch, id, group, rdma.JoinOptions{})
			if e.Params.MGID != mgid || e.Params.PKey != partition || e.Params.PKeyIndex != 1 || e.Params.Device != hca {
				t.Errorf("got %+v, want %v in partition %#x, index 1", e.Params, mgid, partition)
			}
			wantMembers(t, m, mgid, full())
			wantErrno(t, id.Leave(netip.MustParseAddr("239.3.8.8")), syscall.EADDRNOTAVAIL, "leave", "net1", "10.1.1.7")
		}},
		{"namespaces on one port share its membership", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			var ids []*rdma.ID
			for i := range 3 {
				path := m.AddNetNS(t)
				addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 1, byte(10 + i)}), 24)
				m.Node().AddIPoIBChild(path, "net1", ipoib0, partition, addr)
				id := bindAs(t, ch, openNetNS(t, m, path), rdma.PortSpaceUDP, addr.Addr())
				Join(t, ch, id, group, rdma.JoinOptions{})
				ids = append(ids, id)
			}
			for _, id := range ids {
				wantMembers(t, m, mgid, full())
				if err := id.Close(); err != nil {
					t.Fatal(err)
				}
			}
			wantMembers(t, m, mgid)
		}},
		{"a child that goes under its membership leaves the port a member", func(t *testing.T, m InfiniBandMachine) {
			path := m.AddNetNS(t)
			m.Node().AddIPoIBChild(path, "net1", ipoib0, partition, child)
			ch := OpenChannel(t, m)
			id := bindAs(t, ch, openNetNS(t, m, path), rdma.PortSpaceUDP, child.Addr())
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.DeleteInterface(t, path, "net1")
			wantMembers(t, m, mgid, full())
			_, err := id.Join(netip.MustParseAddr("239.3.8.8"), rdma.JoinOptions{})
			wantErrno(t, err, syscall.EADDRNOTAVAIL, "join")
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid)
			quiet(t, ch)
		}},
		{"a child whose P_Key or partition is missing waits for it", func(t *testing.T, m InfiniBandMachine) {
			m.Node().SetPKeys(hca, 0xffff)
			m.Node().AddIPoIBChild("", "ib0.8001", ipoib0, partition, child)
			ch := OpenChannel(t, m)
			id := bindAs(t, ch, nil, rdma.PortSpaceUDP, child.Addr())
			_, err := id.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.EADDRNOTAVAIL, "join", group.String(), "ib0.8001")
			m.Node().SetPKeys(hca, 0xffff, 0x0001) // limited member
			if e := Join(t, ch, id, group, rdma.JoinOptions{}); e.Params.PKey != partition || e.Params.PKeyIndex != 1 {
				t.Errorf("got P_Key %#x at %d, want %#x at the limited one's index 1", e.Params.PKey, e.Params.PKeyIndex, partition)
			}
			m.Node().AddIPoIBChild("", "ib0.8009", ipoib0, 0x8009, netip.MustParsePrefix("10.1.9.2/24"))
			m.Node().SetPKeys(hca, 0xffff, 0x0001, 0x8009)
			nine := bindAs(t, ch, nil, rdma.PortSpaceUDP, netip.MustParseAddr("10.1.9.2"))
			_, err = nine.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.EADDRNOTAVAIL, "join", group.String(), "ib0.8009")
			m.Subnet().AddPartition(rdmatest.Partition{PKey: 0x8009})
			m.Node().SetInterface("", "ib0.8009", false)
			m.Node().SetInterface("", "ib0.8009", true)
			Join(t, ch, nine, group, rdma.JoinOptions{})
		}},
		{"an InfiniBand id tells its partition to the kernel's caller", func(t *testing.T, m InfiniBandMachine) {
			m.Node().AddIPoIBChild("", "ib0.8001", ipoib0, 0x0001, child)
			cm := openCM(t, m)
			for addr, pkey := range map[netip.Addr]uint16{ipoibAddr(): 0xffff, child.Addr(): partition} {
				id, err := cm.CreateID(nil, 77, sys.PortSpaceIPoIB)
				if err != nil {
					t.Fatal(err)
				}
				if err := cm.Bind(id, addr); err != nil {
					t.Fatal(err)
				}
				b, err := cm.QueryAddr(id)
				if err != nil {
					t.Fatal(err)
				}
				if b.PKey != pkey || b.Port != 1 || b.Source != addr || b.NodeGUID == 0 {
					t.Errorf("got %+v, want %v with P_Key %#x on port 1", b, addr, pkey)
				}
			}
			table, err := m.Kernel().PKeys(hca, 1)
			if err != nil || !slices.Equal(table, []uint16{0xffff, partition}) {
				t.Errorf("got P_Keys %#x, error %v", table, err)
			}
			_, err = m.Kernel().PKeys(hca, 2)
			wantRaw(t, "P_Keys of a port that isn't there", err, syscall.ENOENT)
		}},
		{"InfiniBand ports are listed with their IPoIB interfaces, GID and P_Keys", func(t *testing.T, m InfiniBandMachine) {
			path := m.AddNetNS(t)
			m.Node().AddIPoIBChild(path, "net1", ipoib0, partition, child)
			list := func(ns *rdma.NetNS, state rdma.PortState, interfaces ...string) {
				t.Helper()
				want := []rdma.Device{{Name: hca, NUMANode: -1, UVerbs: "uverbs0", Ports: []rdma.Port{{
					Number: 1, LinkLayer: rdma.LinkLayerInfiniBand, State: state, Interfaces: interfaces,
					GIDs: []rdma.GID{{GID: portGID(t, m)}}, PKeys: []uint16{0xffff, partition},
				}}}}
				devices, err := m.Host().Devices(ns)
				if err != nil {
					t.Fatal(err)
				}
				opts := cmp.Options{
					cmpopts.IgnoreFields(rdma.Device{}, "NodeGUID"),
					cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
				}
				if diff := cmp.Diff(want, devices, opts); diff != "" {
					t.Errorf("devices (-want +got):\n%s", diff)
				}
			}
			ns := openNetNS(t, m, path)
			list(nil, rdma.PortActive, ipoib0)
			list(ns, rdma.PortActive, "net1")
			m.Node().SetPortLink(hca, false)
			list(nil, rdma.PortDown, ipoib0)
			m.Subnet().StopSM()
			m.Node().SetPortLink(hca, true)
			list(nil, rdma.PortInit, ipoib0)
			m.Subnet().StartSM()
			list(nil, rdma.PortActive, ipoib0)
			interfaces, err := m.Host().Interfaces(ns)
			if err != nil || len(interfaces) != 1 || interfaces[0].LinkLayer != rdma.LinkLayerInfiniBand || interfaces[0].PKey != partition {
				t.Errorf("got interfaces %+v, error %v, want net1 on InfiniBand in partition %#x", interfaces, err, partition)
			}
		}},
	}
}
