package rdmatest_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// simulatedOnly has what a real kernel can't be made to do here.
func simulatedOnly() []conformance.Scenario {
	group := netip.MustParseAddr("239.2.1.7")
	addr := netip.MustParseAddr("10.0.0.2")
	node := func(m conformance.Machine) *rdmatest.Node { return m.(*machine).node }
	return []conformance.Scenario{
		{Name: "a join without an answer times out, once, and can be left and joined anew", Run: func(t *testing.T, m conformance.Machine) {
			remove := node(m).Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Group: group, Silent: true})
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, addr)
			membership, err := id.Join(group, rdma.JoinOptions{Timeout: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			e := conformance.Next(t, ch)
			if e.Type != rdma.MulticastError || e.Membership != membership || !errors.Is(e.Err, syscall.ETIMEDOUT) {
				t.Errorf("got event %+v, want MulticastError with ETIMEDOUT", e)
			}
			if users := m.IGMP(t, "", "rdma0")[group]; users != 0 {
				t.Errorf("got %d users of the group after the deadline, want the join cancelled", users)
			}
			if err := id.Leave(group); err != nil {
				t.Errorf("leave after the deadline: %v", err)
			}
			remove()
			conformance.Join(t, ch, id, group, rdma.JoinOptions{})
		}},
		{Name: "leaving before the deadline cancels it too", Run: func(t *testing.T, m conformance.Machine) {
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Group: group, Silent: true})
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, addr)
			if _, err := id.Join(group, rdma.JoinOptions{Timeout: time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			conformance.Eventually(t, "the deadline cancels the join", func() bool {
				return m.IGMP(t, "", "rdma0")[group] == 0
			})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			// The event of the deadline is queued by now, or will be: never seen.
			conformance.Join(t, ch, id, netip.MustParseAddr("239.2.1.8"), rdma.JoinOptions{})
		}},
		{Name: "a failed join is told with its errno, and holds the group until it is left", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, addr)
			for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EINVAL, syscall.ETIMEDOUT} {
				node(m).Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Group: group, Err: errno, Times: 1})
				if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
					t.Fatal(err)
				}
				if e := conformance.Next(t, ch); e.Type != rdma.MulticastError || !errors.Is(e.Err, errno) {
					t.Errorf("got event %+v, want MulticastError with %v", e, errno)
				}
				if _, err := id.Join(group, rdma.JoinOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
					t.Errorf("joining before leaving: got error %v, want EADDRINUSE", err)
				}
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
			}
			conformance.Join(t, ch, id, group, rdma.JoinOptions{})
		}},
		{Name: "a lost membership is told once and its queue pair detached by leaving", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, addr)
			qp := &detaching{}
			conformance.Join(t, ch, id, group, rdma.JoinOptions{QP: qp})
			node(m).FailMemberships(group, syscall.ENETRESET)
			node(m).FailMemberships(group, syscall.ENETRESET)
			if e := conformance.Next(t, ch); e.Type != rdma.MulticastError || !errors.Is(e.Err, syscall.ENETRESET) {
				t.Errorf("got event %+v, want MulticastError with ENETRESET", e)
			}
			conformance.Join(t, ch, id, netip.MustParseAddr("239.2.1.8"), rdma.JoinOptions{}) // the next event is this one's
			if qp.detached != 0 {
				t.Error("detached before it was left")
			}
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			if qp.detached != 1 {
				t.Errorf("detached %d times, want once", qp.detached)
			}
		}},
		{Name: "a leave that the kernel refuses can be repeated, and detaches once", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, addr)
			qp := &detaching{}
			conformance.Join(t, ch, id, group, rdma.JoinOptions{QP: qp})
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpLeave, Group: group, Err: syscall.ENOMEM, Times: 1})
			if err := id.Leave(group); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("got error %v, want ENOMEM", err)
			}
			if _, err := id.Join(group, rdma.JoinOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("joining while the kernel is still a member: got error %v, want EADDRINUSE", err)
			}
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			if users := m.IGMP(t, "", "rdma0")[group]; users != 0 || qp.detached != 1 {
				t.Errorf("%d users, detached %d times, want none and once", users, qp.detached)
			}
		}},
		{Name: "a call that hangs on one id delays no other id's events", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			stuck, other := conformance.Bind(t, ch, addr), conformance.Bind(t, ch, netip.MustParseAddr("10.0.0.3"))
			conformance.Join(t, ch, stuck, group, rdma.JoinOptions{})
			release := make(chan struct{})
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpLeave, Interface: "rdma0", Until: release})
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := stuck.Leave(group); err != nil {
					t.Error(err)
				}
			})
			conformance.Join(t, ch, other, group, rdma.JoinOptions{})
			close(release)
			wg.Wait()
		}},
		{Name: "errors of opening, creating and destroying come back", Run: func(t *testing.T, m conformance.Machine) {
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpOpen, Err: syscall.EMFILE, Times: 1})
			if _, err := m.Host().OpenChannel(); !errors.Is(err, syscall.EMFILE) || errors.Is(err, rdma.ErrUnavailable) {
				t.Errorf("open: got error %v, want EMFILE alone", err)
			}
			ch := conformance.OpenChannel(t, m)
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpCreateID, Err: syscall.EACCES, Times: 1})
			if _, err := ch.NewID(nil, rdma.PortSpaceUDP); !errors.Is(err, syscall.EACCES) {
				t.Errorf("create id: got error %v, want EACCES", err)
			}
			id := conformance.Bind(t, ch, addr)
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.ENOMEM, Times: 1})
			if _, err := id.Join(group, rdma.JoinOptions{}); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("join: got error %v, want ENOMEM", err)
			}
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpDestroy, Interface: "rdma0", Err: syscall.EIO, Times: 1})
			if err := id.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("destroy: got error %v, want EIO", err)
			}
		}},
		{Name: "a deadline that passes while the channel closes delivers nothing", Run: func(t *testing.T, m conformance.Machine) {
			node(m).Inject(rdmatest.Fault{Op: rdmatest.OpJoinEvent, Silent: true})
			for range 50 {
				ch, err := m.Host().OpenChannel()
				if err != nil {
					t.Fatal(err)
				}
				id := conformance.Bind(t, ch, addr)
				if _, err := id.Join(group, rdma.JoinOptions{Timeout: time.Microsecond}); err != nil {
					t.Fatal(err)
				}
				if err := ch.Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := ch.Next(context.Background()); err == nil {
					t.Fatal("an event after closing")
				}
			}
		}},
	}
}

// detaching counts.
type detaching struct{ detached int }

func (d *detaching) AttachMulticast(netip.Addr, uint16) error { return nil }

func (d *detaching) DetachMulticast(netip.Addr, uint16) error {
	d.detached++
	return nil
}
