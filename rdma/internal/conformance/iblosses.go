package conformance

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// ibLosses has what throws members out of InfiniBand groups.
func ibLosses() []ibScenario {
	group := netip.MustParseAddr("239.3.7.7")
	mgid := udpMGID(group)
	broadcast := netip.MustParseAddr("ff12:401b:ffff::ffff:ffff")
	// lose is a scenario of a loss with ENETRESET, after which the subnet manager
	// has the port still, or not.
	lose := func(name string, keeps bool, do func(m InfiniBandMachine)) ibScenario {
		return ibScenario{name + " ends memberships with ENETRESET, and nobody rejoins by itself", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id, other := bindIB(t, ch, rdma.PortSpaceUDP), bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, id, group, rdma.JoinOptions{})
			Join(t, ch, other, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			do(m)
			for range 2 {
				wantLost(t, ch, syscall.ENETRESET)
			}
			quiet(t, ch)
			wantMembers(t, m, broadcast, rdmatest.SubnetMember{Node: "other", Device: hca, Full: true}, full())
			both := full()
			both.SendOnly = true
			left := func() {
				t.Helper()
				if keeps {
					wantMembers(t, m, mgid, both)
				} else {
					wantMembers(t, m, mgid)
				}
			}
			left()
			_, err := id.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.EADDRINUSE, "join", group.String())
			for _, id := range []*rdma.ID{id, other} {
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
			}
			left() // the kernel sent no SA Delete
			// The other join state first: OpenSM loses the MLID else.
			Join(t, ch, other, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			Join(t, ch, id, group, rdma.JoinOptions{})
			for _, id := range []*rdma.ID{other, id} {
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
			}
			wantMembers(t, m, mgid)
			quiet(t, ch)
		}}
	}
	return []ibScenario{
		lose("another subnet manager", false, func(m InfiniBandMachine) { m.Subnet().FailOver(true) }),
		lose("a subnet manager that was restarted", false, func(m InfiniBandMachine) {
			m.Subnet().StopSM()
			m.Subnet().StartSM()
		}),
		lose("another LID", true, func(m InfiniBandMachine) { m.Node().ChangeLID(hca) }),
		lose("a port error", false, func(m InfiniBandMachine) {
			m.Node().SetPortLink(hca, false)
			m.Node().SetPortLink(hca, true)
		}),
		lose("a P_Key that moves in the table", true, func(m InfiniBandMachine) { m.Node().SetPKeys(hca, 0, partition, 0xffff) }),
		{"a P_Key that stays where it is ends no membership", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.Node().SetPKeys(hca, 0xffff, partition, 0x8002)
			quiet(t, ch)
			wantMembers(t, m, mgid, full())
		}},
		{"a subnet manager that takes over without a word leaves members that it doesn't know", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.Subnet().FailOver(false)
			quiet(t, ch)
			wantMembers(t, m, mgid)
			// Another member doesn't make it a member: the kernel thinks that it is.
			Join(t, ch, bindIB(t, ch, rdma.PortSpaceUDP), group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			wantMembers(t, m, mgid, sendOnly())
		}},
		{"leaving and joining makes up for a loss that nobody told", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.Subnet().FailOver(false)
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			Join(t, ch, id, group, rdma.JoinOptions{})
			wantMembers(t, m, mgid, full())
		}},
		{"a loss while a join waits comes after its answer", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Late: true})
			request(t, id, group, rdma.JoinOptions{})
			m.Node().ChangeLID(hca)
			answer()
			// The answer's record is forgotten, and the join asked for again.
			if e := Next(t, ch); e.Type != rdma.MulticastJoined {
				t.Errorf("got event %+v, want MulticastJoined", e)
			}
			wantMembers(t, m, mgid, full())
		}},
		{"a loss that waits for an answer isn't taken back by a P_Key table that stays as it is", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id, other := bindIB(t, ch, rdma.PortSpaceUDP), bindIB(t, ch, rdma.PortSpaceUDP)
			lost := Join(t, ch, id, group, rdma.JoinOptions{}).Membership
			answer := m.Subnet().Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Late: true})
			request(t, other, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			m.Node().ChangeLID(hca)
			m.Node().SetPKeys(hca, 0xffff, partition)
			answer()
			if e := Next(t, ch); e.Membership != lost || !errors.Is(e.Err, syscall.ENETRESET) {
				t.Errorf("got event %+v, want ENETRESET of the first membership", e)
			}
			if e := Next(t, ch); e.Type != rdma.MulticastJoined {
				t.Errorf("got event %+v, want MulticastJoined", e)
			}
		}},
		{"another hardware address is told, and ends no membership", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.Node().AddIPoIBChild("", "ib0.8001", ipoib0, partition, netip.MustParsePrefix("10.1.1.2/24"))
			bindAs(t, ch, nil, rdma.PortSpaceUDP, netip.MustParseAddr("10.1.1.2")) // isn't told
			m.Node().ChangeHardwareAddr("", ipoib0)
			if e := Next(t, ch); e.Type != rdma.AddressChange || e.ID != id {
				t.Errorf("got event %+v, want AddressChange of the id", e)
			}
			quiet(t, ch)
			wantMembers(t, m, mgid, full())
		}},
	}
}
