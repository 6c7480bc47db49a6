package conformance

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// ibRemoval has what holds when an InfiniBand device goes, and of watching.
func ibRemoval() []ibScenario {
	group := netip.MustParseAddr("239.3.9.7")
	mgid := udpMGID(group)
	return []ibScenario{
		{"an InfiniBand device that goes takes memberships and interfaces with it", func(t *testing.T, m InfiniBandMachine) {
			path := m.AddNetNS(t)
			child := netip.MustParsePrefix("10.1.1.7/24")
			m.Node().AddIPoIBChild(path, "net1", ipoib0, partition, child)
			ns := openNetNS(t, m, path)
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			qp := &queuePair{}
			mlid := Join(t, ch, id, group, rdma.JoinOptions{QP: qp}).Params.MLID
			// One that waits goes too.
			m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: udpMGID(netip.MustParseAddr("239.3.9.8")), Late: true})
			request(t, id, netip.MustParseAddr("239.3.9.8"), rdma.JoinOptions{})
			pod := bindAs(t, ch, ns, rdma.PortSpaceUDP, child.Addr())
			// The subnet manager sees it go, whether or not it hears of a leave.
			m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSADelete, MGID: mgid, Silent: true})
			m.RemoveDevice(t, hca)
			removed := map[*rdma.ID]bool{}
			for range 2 {
				e := Next(t, ch)
				if e.Type != rdma.DeviceRemoval {
					t.Errorf("got event %+v, want DeviceRemoval", e)
				}
				removed[e.ID] = true
			}
			if !removed[id] || !removed[pod] {
				t.Errorf("got DeviceRemoval of %v, want it of both ids", removed)
			}
			for group, g := range m.Subnet().MDB() {
				if !g.Configured || slices.ContainsFunc(g.Members, func(m rdmatest.SubnetMember) bool { return m.Node == "vm" }) {
					t.Errorf("the subnet manager has %v still: %+v", group, g)
				}
			}
			wantErrno(t, id.Leave(group), syscall.ENXIO, "leave", group.String(), ipoib0)
			qp.want(t, call{"attach", mgid, mlid}, call{"detach", mgid, mlid})
			_, err := id.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.ENXIO, "join", group.String(), ipoib0)
			for _, id := range []*rdma.ID{id, pod} {
				if err := id.Close(); err != nil {
					t.Errorf("closing the id: %v", err)
				}
			}
			for _, ns := range []*rdma.NetNS{nil, ns} {
				if names, err := m.Host().LinkNames(ns); err != nil || len(names) != 1 {
					t.Errorf("got links %v, error %v, want the loopback interface alone", names, err)
				}
			}
			m.Node().AddHCA(m.Subnet(), hca, ipoib0, netip.PrefixFrom(ipoibAddr(), 24))
			Join(t, ch, bindIB(t, ch, rdma.PortSpaceUDP), group, rdma.JoinOptions{})
			wantMembers(t, m, mgid, full())
		}},
		{"without an IPoIB interface there is nothing to bind to", func(t *testing.T, m InfiniBandMachine) {
			m.DeleteInterface(t, "", ipoib0)
			ch := OpenChannel(t, m)
			id, err := ch.NewID(nil, rdma.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Bind(ipoibAddr()), syscall.EADDRNOTAVAIL, "bind", "10.1.0.2")
			if interfaces, err := m.Host().Interfaces(nil); err != nil || len(interfaces) != 0 {
				t.Errorf("got interfaces %+v, error %v, want none", interfaces, err)
			}
		}},
		{"watches tell of what happens to an InfiniBand port", func(t *testing.T, m InfiniBandMachine) {
			links, err := m.Kernel().WatchLinks(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer links.Close()
			devices, err := m.Kernel().WatchDevices()
			if err != nil {
				t.Fatal(err)
			}
			defer devices.Close()
			told := func(w sys.Watch) bool {
				select {
				case <-w.Changed():
					return true
				default:
					return false
				}
			}
			for what, do := range map[string]func(){
				"link":    func() { m.Node().SetPortLink(hca, false); m.Node().SetPortLink(hca, true) },
				"P_Keys":  func() { m.Node().SetPKeys(hca, 0xffff) },
				"LID":     func() { m.Node().ChangeLID(hca) },
				"subnet":  func() { m.Subnet().FailOver(true) },
				"nothing": func() {},
			} {
				do()
				happened := what != "nothing"
				if told(devices) != happened {
					t.Errorf("%s: the watch of devices told %v", what, !happened)
				}
				if told(links) != happened {
					t.Errorf("%s: the watch of links told %v", what, !happened)
				}
			}
		}},
	}
}
