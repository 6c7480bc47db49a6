package membership

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func TestJoinAndLeave(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"))
		s := e.wantState("a", Joined)
		if s.Epoch != 1 || s.Params.MGID != netip.MustParseAddr("::ffff:239.1.1.7") || s.Params.Device != "rxe0" || s.Params.GIDIndex == 0 {
			t.Errorf("status = %+v", s)
		}
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
		e.wantCalls("begin default/a uid-a 1")
		e.wantIDs(1)
		if held := e.table.Held(); len(held) != 1 || held[0] != "uid-a" {
			t.Errorf("Held = %v", held)
		}

		e.apply()
		if s := e.table.Snapshot(); len(s) != 0 {
			t.Errorf("Snapshot = %+v after the leave", s)
		}
		e.wantIGMP(netns, "net1", nil)
		e.wantCalls("end uid-a, members 0")
		e.wantIDs(0)
		if held := e.table.Held(); len(held) != 0 {
			t.Errorf("Held = %v", held)
		}

		e.apply(want("a", "239.1.1.7"))
		if s := e.wantState("a", Joined); s.Epoch != 2 {
			t.Errorf("epoch = %d after the second join, want 2", s.Epoch)
		}
		e.wantCalls("begin default/a uid-a 1")
	})
}

func TestEndOfRunLeavesAllAndTellsNobody(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"), want("b", "239.1.1.8", onNode))
		e.protocol.taken()
		e.stop()
		e.wantCalls()
		e.wantIGMP(netns, "net1", nil)
		e.wantIGMP("", "rdma0", nil)
		e.table.Apply([]Wanted{want("a", "239.1.1.7")})
		if err := e.table.LeaveScope(e.t.Context(), "s-1"); err != nil {
			t.Errorf("LeaveScope after Run: %v", err)
		}
		if s := e.table.Snapshot(); len(s) != 0 {
			t.Errorf("Snapshot = %+v after Run", s)
		}
	})
}

func TestMembershipsOfOneInterfaceShareAnID(t *testing.T) {
	run(t, func(e *env) {
		a, b := want("a", "239.1.1.7"), want("b", "239.1.1.8")
		e.apply(a, b, want("c", "239.1.1.7", onNode))
		e.wantIDs(2)
		e.apply(a)
		e.wantIDs(1)
		e.wantState("a", Joined)
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
		e.apply()
		e.wantIDs(0)
	})
}

func TestManyAtOnce(t *testing.T) {
	run(t, func(e *env) {
		const n = 1000
		var list []Wanted
		for i := range n {
			list = append(list, want(fmt.Sprint("g", i), fmt.Sprintf("239.2.%d.%d", i/250, i%250)))
		}
		e.apply(list...)
		for _, s := range e.table.Snapshot() {
			if s.State != Joined {
				t.Fatalf("%s is %s: %s", s.GroupName, s.State, s.Message)
			}
		}
		if got := len(e.node.IGMP(netns, "net1")); got != n {
			t.Errorf("%d groups in the kernel's table, want %d", got, n)
		}
		e.wantIDs(1)
		if err := e.table.LeaveScope(e.t.Context(), "s-1"); err != nil {
			t.Error(err)
		}
		e.wantIGMP(netns, "net1", nil)
		e.wantIDs(0)
	})
}

func TestWantedChanges(t *testing.T) {
	a := want("a", "239.1.1.7")
	tests := map[string]struct {
		change func(*Wanted, *rdmatest.Node)
		rejoin bool
		igmp   int
	}{
		"the mode":       {func(w *Wanted, _ *rdmatest.Node) { w.Mode = rdma.SendOnlyFullMember }, true, 0},
		"another holder": {func(w *Wanted, _ *rdmatest.Node) { w.Holders = []string{"uid-p", "uid-q"} }, false, 1},
		"the generation": {func(w *Wanted, _ *rdmatest.Node) { w.Generation = 2 }, false, 1},
		"nothing":        {func(*Wanted, *rdmatest.Node) {}, false, 1},
		"the bind address": {func(w *Wanted, n *rdmatest.Node) {
			n.DeleteInterface(netns, "net1")
			n.AddMACVLAN(netns, "net1", "rdma0", netip.MustParsePrefix("10.0.0.3/24"))
			w.BindAddr = netip.MustParseAddr("10.0.0.3")
		}, true, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(e *env) {
				e.apply(a)
				b := a
				tt.change(&b, e.node)
				e.apply(b)
				s := e.wantState("a", Joined)
				if (s.Epoch == 2) != tt.rejoin {
					t.Errorf("epoch = %d, want a rejoin: %t", s.Epoch, tt.rejoin)
				}
				if s.Generation != b.Generation || len(s.Holders) != len(b.Holders) {
					t.Errorf("status is about %+v, want %+v", s.Wanted, b)
				}
				if got := e.node.IGMP(netns, "net1")[groupA]; got != tt.igmp {
					t.Errorf("IGMP users = %d, want %d", got, tt.igmp)
				}
				e.wantIDs(1)
				e.wantCalls("begin default/a uid-a 1")
			})
		})
	}
}

func TestChangedIsTold(t *testing.T) {
	var calls atomic.Int64
	run(t, func(e *env) {
		for _, change := range []func(){
			func() { e.apply(want("a", "239.1.1.7")) },
			func() { e.node.FailMemberships(groupA, syscall.ENETRESET); e.settle() },
			func() { time.Sleep(2 * time.Second); e.settle() },
			func() { e.apply() },
		} {
			calls.Store(0)
			change()
			time.Sleep(changedInterval)
			e.settle()
			if calls.Load() == 0 {
				t.Error("Changed wasn't called")
			}
		}
		calls.Store(0)
		time.Sleep(time.Hour)
		e.settle()
		if n := calls.Load(); n != 0 {
			t.Errorf("Changed was called %d times though nothing had changed", n)
		}
	}, func(o *TableOptions, _ *rdmatest.Node) { o.Changed = func() { calls.Add(1) } })
}

// Many changes are told in few calls, the last of them too.
func TestChangesAreGathered(t *testing.T) {
	var calls atomic.Int64
	run(t, func(e *env) {
		calls.Store(0)
		for i := range 100 {
			e.apply(want("a", "239.1.1.7", func(w *Wanted) { w.Generation = int64(i + 2) }))
		}
		if n := calls.Load(); n > 2 {
			t.Errorf("Changed was called %d times at one moment", n)
		}
		calls.Store(0)
		e.apply()
		time.Sleep(changedInterval)
		e.settle()
		if calls.Load() == 0 {
			t.Error("the last change wasn't told")
		}
	}, func(o *TableOptions, _ *rdmatest.Node) { o.Changed = func() { calls.Add(1) } })
}
