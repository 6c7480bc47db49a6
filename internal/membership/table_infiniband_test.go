package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// runIB is run with a port on an InfiniBand subnet, ib0, beside the NIC.
func runIB(t *testing.T, f func(e *env, subnet *rdmatest.Subnet), change ...func(*TableOptions, *rdmatest.Node)) {
	t.Helper()
	run(t, func(e *env) {
		subnet := e.fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
		subnet.AddPartition(rdmatest.Partition{PKey: 0x8001})
		e.node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.1/24"))
		e.settle()
		f(e, subnet)
	}, change...)
}

// onIB moves a membership to the node's InfiniBand interface.
func onIB(w *Wanted) {
	w.Scope, w.Interface, w.NetNS, w.BindAddr = NodeScope, "ib0", "", netip.MustParseAddr("10.1.0.1")
	w.Device, w.LinkLayer = "mlx5_0", rdma.LinkLayerInfiniBand
}

func asMGID(w *Wanted) { w.Verbatim = true }

func inIPoIB(w *Wanted) { w.PortSpace = rdma.PortSpaceIPoIB }

// mgid of 239.1.1.7 in port space UDP, P_Key 0xffff.
var mgidA = netip.MustParseAddr("ff12:4001:ffff::f01:107")

func memberOf(subnet *rdmatest.Subnet, mgid netip.Addr) bool {
	return len(subnet.MDB()[mgid].Members) > 0
}

// Addresses of both families, both port spaces and verbatim MGIDs are groups of
// their own, also the same MGID asked for in two ways.
func TestInfiniBandGroups(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		wanted := []Wanted{
			want("a", "239.1.1.7", onIB), want("b", "239.1.1.7", onIB, inIPoIB), want("c", "ff0e::7", onIB),
			want("d", "ff15:a01b:fe80::7", onIB), want("e", "ff15:a01b:fe80::7", onIB, asMGID), want("f", "ff15:1234::7", onIB, asMGID),
		}
		e.apply(wanted...)
		for name, mgid := range map[string]string{
			"a": mgidA.String(), "b": "ff12:401b:ffff::f01:107", "c": "ff12:6001:ffff::7",
			"d": "ff15:a01b:fe80::7", "e": "ff15:a01b:fe80::7", "f": "ff15:1234::7",
		} {
			s := e.wantState(name, Joined)
			if s.Params.MGID.String() != mgid || s.Params.MLID < 0xc000 {
				t.Errorf("%s: MGID %s, MLID %#x; want %s", name, s.Params.MGID, s.Params.MLID, mgid)
			}
			if !memberOf(subnet, s.Params.MGID) {
				t.Errorf("%s: the subnet manager knows no member of %s", name, mgid)
			}
		}
		e.apply(wanted[:4]...) // e goes, d has the same MGID
		e.wantState("d", Joined)
		if !memberOf(subnet, netip.MustParseAddr("ff15:a01b:fe80::7")) || memberOf(subnet, netip.MustParseAddr("ff15:1234::7")) {
			t.Errorf("subnet manager: %+v", subnet.MDB())
		}
		e.apply()
		if memberOf(subnet, mgidA) || len(e.node.Memberships()) != 0 {
			t.Errorf("left over: %+v, %+v", subnet.MDB(), e.node.Memberships())
		}
	})
}

// A subnet manager that has taken over knows no member and says so: every
// membership is left and joined anew, with a higher epoch.
func TestFailoverRejoins(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		e.apply(want("a", "239.1.1.7", onIB), want("b", "239.1.1.8"))
		before, other := e.wantState("a", Joined), e.wantState("b", Joined)
		subnet.FailOver(true)
		e.settle()
		failing := e.wantState("a", Failing)
		if !errors.Is(failing.Err, syscall.ENETRESET) {
			t.Errorf("failing with %v", failing.Err)
		}
		if after := e.status("b"); after.Epoch != other.Epoch || after.State != Joined {
			t.Errorf("a membership on RoCE was touched: %+v", after)
		}
		time.Sleep(2 * DefaultFirstRetry)
		e.settle()
		if after := e.wantState("a", Joined); after.Epoch <= before.Epoch || !memberOf(subnet, mgidA) {
			t.Errorf("epoch %d, then %d; subnet manager: %+v", before.Epoch, after.Epoch, subnet.MDB())
		}
	})
}

// A failover of many memberships isn't a storm: they are joined anew at the pace
// of their port, all of them.
func TestFailoverIsPaced(t *testing.T) {
	const number = 2000
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		var wanted []Wanted
		for i := range number {
			wanted = append(wanted, want(fmt.Sprint(i), fmt.Sprintf("239.8.%d.%d", i/250, i%250), onIB))
		}
		joined := func() (n int) {
			for _, s := range e.table.Snapshot() {
				if s.State == Joined {
					n++
				}
			}
			return n
		}
		e.apply(wanted...)
		if n := joined(); n < DefaultJoinBurst || n > 2*DefaultJoinBurst {
			t.Errorf("%d joined at once, want about the burst of %d", n, DefaultJoinBurst)
		}
		time.Sleep(number * DefaultJoinInterval)
		e.settle()
		if n := joined(); n != number {
			t.Fatalf("%d of %d joined", n, number)
		}
		subnet.FailOver(true)
		e.settle()
		last := joined()
		for range number * DefaultJoinInterval / time.Second {
			time.Sleep(time.Second)
			e.settle()
			n := joined()
			if most := int(time.Second/DefaultJoinInterval) + DefaultJoinBurst; n-last > most {
				t.Errorf("%d joined in a second, want at most %d", n-last, most)
			}
			last = n
		}
		time.Sleep(2 * time.Second)
		e.settle()
		if n := joined(); n != number {
			t.Errorf("%d of %d joined anew", n, number)
		}
	}, func(o *TableOptions, _ *rdmatest.Node) { o.LeaveSettle = time.Millisecond })
}

// The kernel forgets what ENETRESET took away and the subnet manager doesn't, as
// after a change of the LID: it is joined once more to be left.
func TestLostMembershipIsRepaid(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		e.apply(want("a", "239.1.1.7", onIB))
		e.wantState("a", Joined)
		e.node.ChangeLID("mlx5_0")
		e.settle()
		e.wantState("a", Failing)
		if !memberOf(subnet, mgidA) {
			t.Fatal("the subnet manager has forgotten the member by itself: there is nothing to test")
		}
		e.apply()
		if s := e.status("a"); s.State != "" || memberOf(subnet, mgidA) {
			t.Errorf("state %q; subnet manager: %+v", s.State, subnet.MDB())
		}
		e.wantCalls("begin default/a uid-a 1", "end uid-a, members 0")
	})
}

// Where the subnet manager doesn't answer, that is given up.
func TestRepayingIsGivenUp(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		e.apply(want("a", "239.1.1.7", onIB))
		e.wantState("a", Joined)
		subnet.StopSM()
		e.node.ChangeLID("mlx5_0")
		e.settle()
		e.apply()
		e.wantState("a", Leaving)
		time.Sleep(rdma.DefaultJoinTimeout)
		e.settle()
		if s := e.status("a"); s.State != "" {
			t.Errorf("it is %s still", s.State)
		}
	})
}

// Without IPoIB's broadcast group, or a way to the subnet manager, a membership
// waits: nobody has to do anything.
func TestInfiniBandNotReadyWaits(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EADDRNOTAVAIL} {
		runIB(t, func(e *env, _ *rdmatest.Subnet) {
			remove := e.node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Err: errno})
			e.apply(want("a", "239.1.1.7", onIB))
			e.wantState("a", Waiting)
			remove()
			time.Sleep(2 * DefaultFirstRetry)
			e.settle()
			e.wantState("a", Joined)
		})
	}
}

// What the subnet manager refuses is told as failing, with the errno.
func TestSubnetManagerRefuses(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		e.apply(want("a", "ff12:a01b:fe80::7", onIB, asMGID))
		if s := e.wantState("a", Failing); !errors.Is(s.Err, syscall.EINVAL) {
			t.Errorf("failing with %v", s.Err)
		}
		e.apply()
		if len(subnet.MDB()[netip.MustParseAddr("ff12:a01b:fe80::7")].Members) != 0 {
			t.Errorf("subnet manager: %+v", subnet.MDB())
		}
	})
}

// A P_Key child of the port is an interface of its own, with its own MGID.
func TestPKeyChild(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		e.node.SetPKeys("mlx5_0", 0xffff, 0x8001)
		e.node.AddIPoIBChild("", "ib0.8001", "ib0", 0x8001, netip.MustParsePrefix("10.2.0.1/24"))
		onChild := func(w *Wanted) { w.Interface, w.BindAddr = "ib0.8001", netip.MustParseAddr("10.2.0.1") }
		e.apply(want("a", "239.1.1.7", onIB), want("a", "239.1.1.7", onIB, onChild))
		for _, s := range e.table.Snapshot() {
			want := mgidA.String()
			if s.Interface == "ib0.8001" {
				want = "ff12:4001:8001::f01:107"
			}
			if s.State != Joined || s.Params.MGID.String() != want || s.Params.PKeyIndex < 0 {
				t.Errorf("%s: %s (%s), %+v; want MGID %s", s.Interface, s.State, s.Message, s.Params, want)
			}
		}
	})
}

// A port that became a full member for another one's sake stays one until the
// last leaves: no join state comes on top of another.
func TestPortStaysFull(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		e.node.AddIPoIBChild("", "ib0.1", "ib0", 0xffff, netip.MustParsePrefix("10.1.0.9/24"))
		onOther := func(w *Wanted) { w.Interface, w.BindAddr = "ib0.1", netip.MustParseAddr("10.1.0.9") }
		sender := func(portFull bool) Wanted {
			return want("a", "239.1.1.7", onIB, func(w *Wanted) { w.Mode, w.PortFull = rdma.SendOnlyFullMember, portFull })
		}
		wantState := func(full, sendOnly bool) {
			t.Helper()
			members := subnet.MDB()[mgidA].Members
			if len(members) != 1 || members[0].Full != full || members[0].SendOnly != sendOnly {
				t.Errorf("members are %+v, want full %t, send-only %t", members, full, sendOnly)
			}
		}
		e.apply(sender(false))
		wantState(false, true)
		receiver := want("a", "239.1.1.7", onIB, onOther)
		receiver.Mode = rdma.FullMember
		e.apply(sender(true), receiver)
		wantState(true, false)
		epoch := e.table.Snapshot()[0].Epoch
		e.apply(sender(false))
		wantState(true, false)
		if s := e.table.Snapshot(); len(s) != 1 || s[0].Epoch != epoch || s[0].State != Joined {
			t.Errorf("it was joined anew: %+v", s)
		}
		e.apply()
		if memberOf(subnet, mgidA) {
			t.Error("a member is left over")
		}
	})
}

// A new pod's first join has its own place: thousands that a failover threw out
// don't make its start time out.
func TestFirstJoinPassesRejoins(t *testing.T) {
	const number = 30
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		var all []Wanted
		for i := range number {
			all = append(all, want(fmt.Sprint("g", i), fmt.Sprintf("239.2.0.%d", i), onIB))
		}
		e.apply(all...)
		time.Sleep(2 * number * time.Second)
		e.settle()
		subnet.FailOver(true)
		time.Sleep(2 * time.Second)
		e.apply(append(all, want("new", "239.1.1.7", onIB))...)
		time.Sleep(2 * time.Second)
		e.settle()
		e.wantState("new", Joined)
		time.Sleep(2 * number * time.Second)
		e.settle()
		for _, s := range e.table.Snapshot() {
			if s.State != Joined {
				t.Errorf("%s is %s", s.GroupName, s.State)
			}
		}
	}, func(o *TableOptions, _ *rdmatest.Node) { o.JoinInterval, o.JoinBurst = time.Second, 1 })
}

// What the subnet manager wasn't told is still owed when joining anew has failed
// meanwhile, as it does while a subnet manager starts.
func TestRepaysAfterFailedRejoin(t *testing.T) {
	runIB(t, func(e *env, subnet *rdmatest.Subnet) {
		e.apply(want("a", "239.1.1.7", onIB))
		e.node.ChangeLID("mlx5_0")
		remove := e.node.Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Group: groupA, Err: syscall.EAGAIN})
		e.settle()
		time.Sleep(2 * DefaultFirstRetry)
		e.settle()
		if s := e.wantState("a", Waiting); !errors.Is(s.Err, syscall.EAGAIN) || !memberOf(subnet, mgidA) {
			t.Fatalf("waiting with %v; subnet manager: %+v", s.Err, subnet.MDB())
		}
		remove()
		e.apply()
		time.Sleep(time.Second)
		e.settle()
		if memberOf(subnet, mgidA) || len(e.table.Snapshot()) != 0 {
			t.Errorf("subnet manager: %+v", subnet.MDB())
		}
	})
}
