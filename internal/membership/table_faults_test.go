package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

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
