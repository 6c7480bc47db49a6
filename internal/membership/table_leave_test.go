package membership

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func TestLeaveThatFailsClosesTheID(t *testing.T) {
	run(t, func(e *env) {
		b := want("b", "239.1.1.8")
		e.apply(want("a", "239.1.1.7"), b)
		e.protocol.taken()
		e.node.Inject(rdmatest.Fault{Op: rdmatest.OpLeave, Group: groupA, Err: syscall.EIO})
		e.apply(b)
		e.wantIGMP(netns, "net1", nil)
		e.wantCalls("end uid-a, members 0")
		e.wantState("b", Failing)
		time.Sleep(1200 * time.Millisecond)
		e.settle()
		if s := e.wantState("b", Joined); s.Epoch != 2 {
			t.Errorf("epoch = %d", s.Epoch)
		}
		e.wantIGMP(netns, "net1", map[netip.Addr]int{b.Address: 1})
	})
}

func TestWantedAgainInTime(t *testing.T) {
	run(t, func(e *env) {
		a := want("a", "239.1.1.7")
		e.apply(a)
		e.table.Apply(nil)
		e.table.Apply([]Wanted{a})
		e.settle()
		e.wantState("a", Joined) // left and joined, or not left at all; never stuck
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})

		hang := make(chan struct{})
		e.node.Inject(rdmatest.Fault{Op: rdmatest.OpLeave, Until: hang})
		e.apply()
		e.wantState("a", Leaving)
		e.apply(a)
		close(hang)
		e.settle()
		e.wantState("a", Joined)
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
	})
}

func TestLeaveScope(t *testing.T) {
	a, b := want("a", "239.1.1.7"), want("b", "239.1.1.8", onNode)
	t.Run("leaves, waits for the wire, joins no more", func(t *testing.T) {
		run(t, func(e *env) {
			e.apply(a, b)
			began := time.Now()
			if err := e.table.LeaveScope(e.t.Context(), "s-1"); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d != DefaultLeaveSettle {
				t.Errorf("took %s, want %s once", d, DefaultLeaveSettle)
			}
			e.wantIGMP(netns, "net1", nil)
			e.wantIDs(1)
			e.wantState("b", Joined)
			e.node.DeleteNetNS(netns)

			e.apply(a, b) // from a view that is older than the sandbox's end
			if s := e.table.Snapshot(); len(s) != 1 || s[0].GroupName != "b" {
				t.Errorf("Snapshot = %+v, want b alone", s)
			}
			e.apply(b)
			if len(e.table.ended) != 0 {
				t.Errorf("ended scopes %v are remembered", e.table.ended)
			}
		})
	})
	t.Run("what was left a moment ago is waited for too", func(t *testing.T) {
		run(t, func(e *env) {
			e.apply(a)
			e.apply()
			time.Sleep(10 * time.Millisecond)
			began := time.Now()
			if err := e.table.LeaveScope(e.t.Context(), "s-1"); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d != 30*time.Millisecond {
				t.Errorf("took %s, want 30ms", d)
			}
		})
	})
	t.Run("nothing to leave: at once", func(t *testing.T) {
		run(t, func(e *env) {
			began := time.Now()
			if err := e.table.LeaveScope(e.t.Context(), "s-9"); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d != 0 {
				t.Errorf("took %s", d)
			}
			if err := e.table.LeaveScope(e.t.Context(), NodeScope); err == nil {
				t.Error("the node's own scope was left")
			}
		})
	})
	t.Run("while joining", func(t *testing.T) {
		run(t, func(e *env) {
			e.node.Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Group: groupA, Silent: true})
			e.apply(a)
			e.wantState("a", Joining)
			if err := e.table.LeaveScope(e.t.Context(), "s-1"); err != nil {
				t.Fatal(err)
			}
			if m := e.node.Memberships(); len(m) != 0 {
				t.Errorf("memberships %+v", m)
			}
		})
	})
	t.Run("bounded", func(t *testing.T) {
		run(t, func(e *env) {
			e.apply(a)
			hang := make(chan struct{})
			e.node.Inject(rdmatest.Fault{Op: rdmatest.OpLeave, Until: hang})
			ctx, cancel := context.WithTimeout(e.t.Context(), 300*time.Millisecond)
			defer cancel()
			err := e.table.LeaveScope(ctx, "s-1")
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 1 memberships of sandbox s-1") {
				t.Errorf("error = %v", err)
			}
			close(hang)
			e.settle()
			e.wantIGMP(netns, "net1", nil)
		})
	})
}

// A sandbox that stops doesn't wait for calls that are stuck, however many; the
// others wait for a while.
func TestLeaveScopeWaitsForNoPlace(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"))
		e.wantState("a", Joined)
		for range callsAtOnce {
			e.table.calls <- struct{}{}
		}
		start := time.Now()
		e.apply(want("a", "239.1.1.7"), want("b", "239.1.1.8", onNode))
		if s := e.status("b"); s.State == Joined {
			t.Error("joined without a place")
		}
		if err := e.table.LeaveScope(e.t.Context(), "s-1"); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took >= callPatience {
			t.Errorf("leaving took %v", took)
		}
		time.Sleep(2 * callPatience) // one to bind, one to join
		e.settle()
		e.wantState("b", Joined)
		for range callsAtOnce {
			<-e.table.calls
		}
	})
}
