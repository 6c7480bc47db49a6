package membership

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
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

func TestErrorsOfJoining(t *testing.T) {
	tests := []struct {
		fault rdmatest.Fault
		want  State
	}{
		{rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EAGAIN}, Waiting},
		{rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EADDRNOTAVAIL}, Waiting},
		{rdmatest.Fault{Op: rdmatest.OpBind, Err: syscall.EADDRNOTAVAIL}, Waiting},
		{rdmatest.Fault{Op: rdmatest.OpBind, Err: syscall.ENODEV}, Failing},
		{rdmatest.Fault{Op: rdmatest.OpCreateID, Err: syscall.EPERM}, Failing},
		{rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EINVAL}, Failing},
		{rdmatest.Fault{Op: rdmatest.OpJoin, Err: rdma.ENOTSUPP}, Refused},
		{rdmatest.Fault{Op: rdmatest.OpJoinEvent, Err: syscall.EINVAL}, Failing},
		{rdmatest.Fault{Op: rdmatest.OpJoinEvent, Err: syscall.EAGAIN}, Waiting},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %d", tt.fault.Op, tt.fault.Err), func(t *testing.T) {
			run(t, func(e *env) {
				remove := e.node.Inject(tt.fault)
				e.apply(want("a", "239.1.1.7"))
				s := e.wantState("a", tt.want)
				if !errors.Is(s.Err, tt.fault.Err) {
					t.Errorf("Err = %v, want %v", s.Err, tt.fault.Err)
				}
				if !strings.Contains(s.Message, "net1") && tt.fault.Op != rdmatest.OpCreateID {
					t.Errorf("message %q doesn't name the interface", s.Message)
				}
				e.wantIDs(0)
				time.Sleep(10 * time.Second)
				e.settle()
				e.wantState("a", tt.want)
				remove()
				time.Sleep(DefaultRetryMax * 6 / 5)
				e.settle()
				e.wantState("a", Joined)
				e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{min: time.Second, max: 30 * time.Second}
	for i, nominal := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		nominal *= time.Second
		if d := b.next(); d < nominal*8/10 || d > nominal*12/10 {
			t.Errorf("wait %d = %s, want %s, a fifth more or less", i, d, nominal)
		}
	}
	b.attempts = 1000
	if d := b.next(); d < 24*time.Second || d > 36*time.Second {
		t.Errorf("after many attempts %s", d)
	}
	b.reset()
	if d := b.next(); d > 2*time.Second {
		t.Errorf("after reset %s", d)
	}
}

func TestBadStateStaysUntilItIsGood(t *testing.T) {
	run(t, func(e *env) {
		e.node.Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Silent: true, Times: 3})
		e.apply(want("a", "239.1.1.7"))
		e.wantState("a", Joining)
		time.Sleep(rdma.DefaultJoinTimeout)
		e.settle()
		e.wantState("a", Failing)
		for range 2 {
			time.Sleep(2 * DefaultFirstRetry * 6 / 5)
			e.settle()
			if m := e.node.Memberships(); len(m) != 1 {
				t.Fatalf("memberships %+v, want another join to be under way", m)
			}
			e.wantState("a", Failing)
			time.Sleep(rdma.DefaultJoinTimeout)
			e.settle()
		}
		time.Sleep(4 * DefaultFirstRetry * 6 / 5)
		e.settle()
		e.wantState("a", Joined)
	})
}

func TestOneFaultNeverDelaysAnother(t *testing.T) {
	a, b := want("a", "239.1.1.7"), want("b", "239.1.1.8")
	t.Run("no answer", func(t *testing.T) {
		run(t, func(e *env) {
			e.node.Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Group: groupA, Silent: true})
			began := time.Now()
			e.apply(a, b)
			e.wantState("a", Joining)
			e.wantState("b", Joined)
			if d := time.Since(began); d != 0 {
				t.Errorf("b was joined after %s", d)
			}
			time.Sleep(rdma.DefaultJoinTimeout)
			e.settle()
			if s := e.wantState("a", Failing); !errors.Is(s.Err, syscall.ETIMEDOUT) {
				t.Errorf("Err = %v, want ETIMEDOUT", s.Err)
			}
			e.wantState("b", Joined)
		})
	})
	t.Run("a call that hangs, on another interface", func(t *testing.T) {
		run(t, func(e *env) {
			hang := make(chan struct{})
			e.node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Interface: "net1", Until: hang})
			e.apply(a, want("b", "239.1.1.8", onNode))
			e.wantState("b", Joined)
			close(hang)
			e.settle()
			e.wantState("a", Joined)
		})
	})
	t.Run("the cluster's side hangs, or fails", func(t *testing.T) {
		run(t, func(e *env) {
			release := e.protocol.block("begin default/a uid-a 1")
			e.protocol.set("begin default/c uid-c 1", errAway)
			e.apply(a, b, want("c", "239.1.1.9"))
			e.wantState("b", Joined)
			e.wantState("a", Waiting)
			if s := e.wantState("c", Waiting); !errors.Is(s.Err, errAway) || !strings.Contains(s.Message, errAway.Error()) {
				t.Errorf("status = %+v, want the reason", s)
			}
			e.wantIGMP(netns, "net1", map[netip.Addr]int{b.Address: 1})
			release()
			e.settle()
			e.wantState("a", Joined)
		})
	})
}

func TestMembershipLost(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"))
		time.Sleep(time.Hour)
		e.node.FailMemberships(groupA, syscall.ENETRESET)
		e.settle()
		if s := e.wantState("a", Failing); !errors.Is(s.Err, syscall.ENETRESET) || s.Epoch != 1 {
			t.Errorf("status = %+v", s)
		}
		e.wantIGMP(netns, "net1", nil)
		time.Sleep(1200 * time.Millisecond)
		e.settle()
		if s := e.wantState("a", Joined); s.Epoch != 2 {
			t.Errorf("epoch = %d, want 2", s.Epoch)
		}
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
		e.wantCalls("begin default/a uid-a 1") // the node never stopped wanting it
	})
}

func TestDeviceRemoved(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"), want("b", "239.1.1.8"))
		e.node.RemoveDevice("rxe0")
		e.settle()
		if s := e.wantState("a", Failing); !strings.Contains(s.Message, "net1") || !strings.Contains(s.Message, "removed") {
			t.Errorf("message %q", s.Message)
		}
		e.wantState("b", Failing)
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

func TestModule(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"))
		const told = "kernel module rdma_ucm isn't loaded (no /dev/infiniband/rdma_cm): run modprobe rdma_ucm on the node"
		if err := e.table.Available(); err == nil || err.Error() != told || !errors.Is(err, rdma.ErrUnavailable) {
			t.Fatalf("Available = %v", err)
		}
		if s := e.wantState("a", Waiting); s.Message != told {
			t.Errorf("message %q", s.Message)
		}
		time.Sleep(time.Hour)
		e.node.LoadUCM()
		time.Sleep(DefaultOpenRetry)
		e.settle()
		if err := e.table.Available(); err != nil {
			t.Errorf("Available = %v", err)
		}
		e.wantState("a", Joined)
	}, func(_ *TableOptions, n *rdmatest.Node) {
		if err := n.UnloadUCM(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestChannelBreaks(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"), want("b", "239.1.1.8", onNode))
		e.protocol.taken()
		e.table.mu.Lock()
		channel := e.table.channel
		e.table.mu.Unlock()
		if err := channel.Close(); err != nil { // as if the kernel gave no more events
			t.Fatal(err)
		}
		e.settle()
		if s := e.wantState("a", Failing); !strings.Contains(s.Message, "opened anew") {
			t.Errorf("message %q", s.Message)
		}
		if err := e.table.Available(); err == nil {
			t.Error("Available = nil without a channel")
		}
		time.Sleep(2 * time.Second)
		e.settle()
		for _, name := range []string{"a", "b"} {
			if s := e.wantState(name, Joined); s.Epoch != 2 {
				t.Errorf("epoch of %s = %d, want 2", name, s.Epoch)
			}
		}
		e.wantIDs(2)
		e.wantCalls()
	}, func(o *TableOptions, _ *rdmatest.Node) {
		o.FirstRetry = 100 * time.Millisecond // due while there is no channel: it waits for one, idle
	})
}

func TestNamespaceIsGone(t *testing.T) {
	run(t, func(e *env) {
		e.node.DeleteNetNS(netns)
		e.apply(want("a", "239.1.1.7"), want("b", "239.1.1.8", onNode))
		if s := e.wantState("a", Failing); !errors.Is(s.Err, syscall.ENOENT) || !strings.Contains(s.Message, netns) {
			t.Errorf("status = %+v, want the path named", s)
		}
		e.wantState("b", Joined)
		e.wantIDs(1)
	})
}

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
			if n := len(e.table.ended) + len(e.table.epochs); n != 1 {
				t.Errorf("ended %v, epochs %v: want nothing but the node's epochs", e.table.ended, e.table.epochs)
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
