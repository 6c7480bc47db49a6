package conformance

import (
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// ibWaiting has what holds while the subnet manager takes its time.
func ibWaiting() []ibScenario {
	group, second := netip.MustParseAddr("239.3.6.7"), netip.MustParseAddr("239.3.6.8")
	mgid := udpMGID(group)
	return []ibScenario{
		{"a join waits for the subnet manager, and delays no other group's", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Late: true})
			waiting := request(t, id, group, rdma.JoinOptions{})
			Join(t, ch, id, second, rdma.JoinOptions{})
			wantMembers(t, m, mgid)
			answer()
			if e := Next(t, ch); e.Type != rdma.MulticastJoined || e.Membership != waiting {
				t.Errorf("got event %+v, want MulticastJoined of %v", e, group)
			}
			wantMembers(t, m, mgid, full())
		}},
		{"joins of a group that is being joined get one answer's record", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id, other := bindIB(t, ch, rdma.PortSpaceUDP), bindIB(t, ch, rdma.PortSpaceUDP)
			answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Late: true, Times: 1})
			request(t, id, group, rdma.JoinOptions{})
			m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Status: 0x0200})
			request(t, other, group, rdma.JoinOptions{})
			answer()
			one, two := Next(t, ch), Next(t, ch)
			if one.Type != rdma.MulticastJoined || two.Type != rdma.MulticastJoined || one.Params.MLID != two.Params.MLID {
				t.Errorf("got events %+v and %+v, want both joined with one MLID", one, two)
			}
		}},
		{"a leave doesn't wait for the subnet manager", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, id, group, rdma.JoinOptions{})
			carryOut := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSADelete, MGID: mgid, Late: true})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid, full())
			// A join meanwhile comes after it.
			again := request(t, id, group, rdma.JoinOptions{})
			quiet(t, ch)
			carryOut()
			if e := Next(t, ch); e.Type != rdma.MulticastJoined || e.Membership != again {
				t.Errorf("got event %+v, want MulticastJoined of the second membership", e)
			}
			wantMembers(t, m, mgid, full())
		}},
		{"a leave that gets lost is sent again", func(t *testing.T, m InfiniBandMachine) {
			m.Subnet().SetTimeout(time.Millisecond)
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSADelete, MGID: mgid, Silent: true, Times: 3})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			Eventually(t, "the subnet manager has heard of the leave", func() bool {
				_, there := m.Subnet().MDB()[mgid]
				return !there
			})
		}},
		{"leaving a join that waits for the subnet manager cancels it there too", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			for _, leave := range []func() error{func() error { return id.Leave(group) }, id.Close} {
				answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Late: true})
				request(t, id, group, rdma.JoinOptions{})
				if err := leave(); err != nil {
					t.Fatal(err)
				}
				answer()
				wantMembers(t, m, mgid)
				quiet(t, ch)
			}
		}},
		{"a subnet manager that answers when nobody waits any more has a member that nobody is", func(t *testing.T, m InfiniBandMachine) {
			m.Subnet().SetTimeout(time.Millisecond)
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Late: true})
			request(t, id, group, rdma.JoinOptions{})
			wantLost(t, ch, syscall.ETIMEDOUT)
			answer()
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid, full())
			// Joining and leaving is what makes up for it.
			Join(t, ch, id, group, rdma.JoinOptions{})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid)
		}},
		{"what becomes of a join that was left isn't told, and isn't the next one's", func(t *testing.T, m InfiniBandMachine) {
			m.Subnet().SetTimeout(10 * time.Millisecond)
			cm := openCM(t, m)
			bound := func(uid uint64) uint32 {
				t.Helper()
				id, err := cm.CreateID(nil, uid, sys.PortSpaceUDP)
				if err != nil {
					t.Fatal(err)
				}
				if err := cm.Bind(id, ipoibAddr()); err != nil {
					t.Fatal(err)
				}
				return id
			}
			m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Silent: true, Times: 1})
			handle := joinCM(t, cm, bound(77), 1001, group)
			joinCM(t, cm, bound(78), 1002, group)
			if _, err := cm.Leave(handle); err != nil {
				t.Fatal(err)
			}
			// The other is asked for itself once the first request had no answer.
			e, err := cm.GetEvent()
			if err != nil || e.UID != 1002 || e.Type != sys.EventMulticastJoin {
				t.Errorf("got event %+v, error %v, want that 1002 is joined", e, err)
			}
		}},
		{"a join's own deadline cancels it", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Late: true})
			request(t, id, group, rdma.JoinOptions{Timeout: time.Millisecond})
			wantLost(t, ch, syscall.ETIMEDOUT)
			answer()
			wantMembers(t, m, mgid)
		}},
	}
}
