package conformance

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// ibRefusals has what a join on InfiniBand fails with.
func ibRefusals() []ibScenario {
	group := netip.MustParseAddr("239.3.4.7")
	mgid := udpMGID(group)
	return []ibScenario{
		{"whatever the subnet manager refuses gives EINVAL", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			for _, status := range []uint16{0x0100, 0x0200, 0x0300, 0x0600} {
				m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Node: "vm", Device: hca, Status: status, Times: 1})
				request(t, id, group, rdma.JoinOptions{})
				wantLost(t, ch, syscall.EINVAL)
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
			}
			Join(t, ch, id, group, rdma.JoinOptions{})
		}},
		{"a slower port can't join what a faster one made", func(t *testing.T, m InfiniBandMachine) {
			other, err := m.Other().Host().OpenChannel()
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			for _, slower := range []struct{ mtu, gbps int }{{4096, 40}, {2048, 100}} {
				m.Node().SetPortSpeed(hca, slower.mtu, slower.gbps)
				theirs := bindAs(t, other, nil, rdma.PortSpaceUDP, otherAddr())
				Join(t, other, theirs, group, rdma.JoinOptions{})
				request(t, id, group, rdma.JoinOptions{})
				wantLost(t, ch, syscall.EINVAL)
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
				if err := theirs.Close(); err != nil {
					t.Fatal(err)
				}
				// Where the slower one makes it, both can.
				Join(t, ch, id, group, rdma.JoinOptions{})
				theirs = bindAs(t, other, nil, rdma.PortSpaceUDP, otherAddr())
				Join(t, other, theirs, group, rdma.JoinOptions{})
				for _, err := range []error{theirs.Close(), id.Leave(group)} {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}},
		{"a subnet without an MLID to give refuses the next group, and takes it when one is free", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			var joined []netip.Addr
			for i := range 100 {
				g := netip.AddrFrom4([4]byte{239, 3, 5, byte(i)})
				request(t, id, g, rdma.JoinOptions{})
				if e := Next(t, ch); e.Type == rdma.MulticastError {
					if !errors.Is(e.Err, syscall.EINVAL) {
						t.Errorf("got event %+v, want EINVAL", e)
					}
					break
				}
				joined = append(joined, g)
			}
			if len(joined) == 0 || len(joined) == 100 {
				t.Fatalf("joined %d groups, want as many as there are MLIDs", len(joined))
			}
			request(t, id, group, rdma.JoinOptions{})
			wantLost(t, ch, syscall.EINVAL)
			for _, g := range []netip.Addr{group, joined[0]} {
				if err := id.Leave(g); err != nil {
					t.Fatal(err)
				}
			}
			Join(t, ch, id, group, rdma.JoinOptions{})
		}},
		{"a group that the port has with another Q_Key gives EINVAL without asking", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			ipoib := bindIB(t, ch, rdma.PortSpaceIPoIB)
			e := Join(t, ch, ipoib, group, rdma.JoinOptions{})
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			if _, err := id.JoinMGID(e.Params.MGID, rdma.JoinOptions{}); err != nil {
				t.Fatal(err)
			}
			wantLost(t, ch, syscall.EINVAL)
			wantMembers(t, m, e.Params.MGID, full())
		}},
		{"while IPoIB's broadcast group isn't joined a join gives EADDRNOTAVAIL", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			for _, s := range []struct {
				name         string
				break_, mend func()
			}{
				{"link", func() { m.Node().SetPortLink(hca, false) }, func() { m.Node().SetPortLink(hca, true) }},
				{"interface", func() { m.Node().SetInterface("", ipoib0, false) }, func() { m.Node().SetInterface("", ipoib0, true) }},
				{"P_Key", func() { m.Node().SetPKeys(hca, partition) }, func() { m.Node().SetPKeys(hca, 0xffff, partition) }},
			} {
				s.break_()
				for range 2 {
					_, err := id.Join(group, rdma.JoinOptions{})
					wantErrno(t, err, syscall.EADDRNOTAVAIL, "join", group.String(), ipoib0)
				}
				s.mend()
				Join(t, ch, id, group, rdma.JoinOptions{})
				if err := id.Leave(group); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
			}
		}},
		{"while IPoIB's broadcast group is refused a join gives EADDRNOTAVAIL", func(t *testing.T, m InfiniBandMachine) {
			broadcast := netip.MustParseAddr("ff12:401b:ffff::ffff:ffff")
			accept := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: broadcast, Status: 0x0200})
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			m.Subnet().FailOver(true)
			_, err := id.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.EADDRNOTAVAIL, "join", group.String(), ipoib0)
			accept()
			// It asks again by itself, first after a second.
			Eventually(t, "IPoIB has its broadcast group", func() bool {
				if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
					return false
				}
				return Next(t, ch).Type == rdma.MulticastJoined
			})
		}},
		{"while the port has no way to the subnet manager a join gives EAGAIN", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			restore := m.Node().CutSM(hca)
			request(t, id, group, rdma.JoinOptions{})
			wantLost(t, ch, syscall.EAGAIN)
			restore()
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			Join(t, ch, id, group, rdma.JoinOptions{})
		}},
		{"a subnet manager that doesn't answer gives ETIMEDOUT", func(t *testing.T, m InfiniBandMachine) {
			m.Subnet().SetTimeout(5 * time.Millisecond)
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Silent: true})
			for _, mend := range []func(){answer, m.Subnet().StartSM} {
				request(t, id, group, rdma.JoinOptions{})
				wantLost(t, ch, syscall.ETIMEDOUT)
				mend()
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
				Join(t, ch, id, group, rdma.JoinOptions{})
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
				m.Subnet().StopSM()
			}
			m.Subnet().StartSM()
		}},
	}
}
