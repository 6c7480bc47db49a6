package conformance

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// ibSharing has what holds of the one group that a port has of an MGID.
func ibSharing() []ibScenario {
	group := netip.MustParseAddr("239.3.2.7")
	mgid := udpMGID(group)
	return []ibScenario{
		{"a port is joined once, and left with its last member", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			one, two := bindIB(t, ch, rdma.PortSpaceUDP), bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, one, group, rdma.JoinOptions{})
			// Nobody is asked again: a request would be refused now.
			defer m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Status: 0x0200})()
			Join(t, ch, two, group, rdma.JoinOptions{})
			if err := one.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid, full())
			if err := two.Close(); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid)
		}},
		{"two nodes' ports are members of one group with one MLID", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			other, err := m.Other().Host().OpenChannel()
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			here := Join(t, ch, id, group, rdma.JoinOptions{})
			there := Join(t, other, bindAs(t, other, nil, rdma.PortSpaceUDP, otherAddr()), group, rdma.JoinOptions{})
			if here.Params.MLID != there.Params.MLID {
				t.Errorf("got MLIDs %#x and %#x, want one", here.Params.MLID, there.Params.MLID)
			}
			theirs := rdmatest.SubnetMember{Node: "other", Device: hca, Full: true}
			wantMembers(t, m, mgid, theirs, full())
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid, theirs)
		}},
		{"full and send-only are counted apart on one port", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			sender, receiver := bindIB(t, ch, rdma.PortSpaceUDP), bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, sender, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			Join(t, ch, receiver, group, rdma.JoinOptions{})
			both := full()
			both.SendOnly = true
			wantMembers(t, m, mgid, both)
			if err := sender.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid, full())
			if err := receiver.Leave(group); err != nil {
				t.Fatal(err)
			}
			if _, kept := m.Subnet().MDB()[mgid]; kept {
				t.Error("the group is there after its last member left")
			}
		}},
		{"a port that is full and send-only member, and no longer the former, costs an MLID", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			sender, receiver := bindIB(t, ch, rdma.PortSpaceUDP), bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, sender, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			Join(t, ch, receiver, group, rdma.JoinOptions{})
			for _, id := range []*rdma.ID{receiver, sender} {
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
			}
			if lost, there := m.Subnet().MDB()[mgid]; !there || len(lost.Members) != 0 {
				t.Errorf("got group %+v, %v, want one without members, as OpenSM has it", lost, there)
			}
			m.Subnet().FailOver(true)
			if _, there := m.Subnet().MDB()[mgid]; there {
				t.Error("another subnet manager has the group too")
			}
		}},
		{"IPoIB's own group is shared with port space IPoIB's", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			broadcast := netip.MustParseAddr("ff12:401b:ffff::ffff:ffff")
			wantMembers(t, m, broadcast, rdmatest.SubnetMember{Node: "other", Device: hca, Full: true}, full())
			m.Node().SetInterface("", ipoib0, false)
			wantMembers(t, m, broadcast, rdmatest.SubnetMember{Node: "other", Device: hca, Full: true})
			m.Node().SetInterface("", ipoib0, true)
			// Joined verbatim by a process, it stays when the interface leaves.
			ipoib := bindIB(t, ch, rdma.PortSpaceIPoIB)
			joinMGID(t, ch, ipoib, broadcast)
			m.Node().SetInterface("", ipoib0, false)
			wantMembers(t, m, broadcast, rdmatest.SubnetMember{Node: "other", Device: hca, Full: true}, full())
			// And rdma_cm asks for no more than that the port is a member.
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.Node().SetInterface("", ipoib0, true)
		}},
		{"joins and leaves from many goroutines, through failovers, end with nothing joined", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			ctx, cancel := context.WithCancel(t.Context())
			var loop, workers sync.WaitGroup
			loop.Go(func() {
				for {
					e, err := ch.Next(ctx)
					if err != nil {
						return
					}
					if e.Type == rdma.MulticastError && !errors.Is(e.Err, syscall.ENETRESET) {
						t.Errorf("got event %+v, want joins and losses alone", e)
					}
				}
			})
			for range 4 {
				id := bindIB(t, ch, rdma.PortSpaceUDP)
				workers.Go(func() {
					for i := range 100 {
						g := netip.AddrFrom4([4]byte{239, 3, 3, byte(i % 3)})
						if _, err := id.Join(g, rdma.JoinOptions{}); err != nil {
							t.Error(err)
						}
						if err := id.Leave(g); err != nil {
							t.Error(err)
						}
					}
				})
			}
			workers.Go(func() {
				for range 50 {
					m.Subnet().FailOver(true)
				}
			})
			workers.Wait()
			cancel()
			loop.Wait()
			for mgid, g := range m.Subnet().MDB() {
				if !g.Configured {
					t.Errorf("the subnet manager has %v still: %+v", mgid, g)
				}
			}
		}},
		{"closing the channel leaves everything at the subnet manager", func(t *testing.T, m InfiniBandMachine) {
			ch, err := m.Host().OpenChannel()
			if err != nil {
				t.Fatal(err)
			}
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			before := len(m.Subnet().MDB())
			for i := range 20 {
				Join(t, ch, id, netip.AddrFrom4([4]byte{239, 3, 3, byte(i)}), rdma.JoinOptions{})
			}
			if got := len(m.Subnet().MDB()); got != before+20 {
				t.Errorf("got %d groups, want %d", got, before+20)
			}
			if err := ch.Close(); err != nil {
				t.Fatal(err)
			}
			if got := len(m.Subnet().MDB()); got != before {
				t.Errorf("got %d groups after closing, want %d", got, before)
			}
		}},
	}
}
