package conformance

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// Patience is how long something that has to happen may take: a machine under
// software emulation is slow, and the switch takes 1–2 s to believe a leave.
const Patience = 30 * time.Second

// Eventually waits until a condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// OpenChannel opens a channel that is closed at the end of the test.
func OpenChannel(t *testing.T, m Machine) *rdma.Channel {
	t.Helper()
	ch, err := m.Host().OpenChannel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ch.Close(); err != nil {
			t.Errorf("close the channel: %v", err)
		}
	})
	return ch
}

// Bind makes an id in the initial namespace.
func Bind(t *testing.T, ch *rdma.Channel, addr netip.Addr) *rdma.ID {
	t.Helper()
	return bindIn(t, ch, nil, addr)
}

func bindIn(t *testing.T, ch *rdma.Channel, ns *rdma.NetNS, addr netip.Addr) *rdma.ID {
	t.Helper()
	id, err := ch.NewID(ns, rdma.PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Bind(addr); err != nil {
		t.Fatal(err)
	}
	return id
}

// Next takes the next event.
func Next(t *testing.T, ch *rdma.Channel) rdma.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	e, err := ch.Next(ctx)
	if err != nil {
		t.Fatalf("next event: %v", err)
	}
	return e
}

// request asks for membership, and doesn't wait for the answer.
func request(t *testing.T, id *rdma.ID, group netip.Addr, opts rdma.JoinOptions) *rdma.Membership {
	t.Helper()
	m, err := id.Join(group, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Join joins and takes the event that says so.
func Join(t *testing.T, ch *rdma.Channel, id *rdma.ID, group netip.Addr, opts rdma.JoinOptions) rdma.Event {
	t.Helper()
	m := request(t, id, group, opts)
	e := Next(t, ch)
	if e.Type != rdma.MulticastJoined || e.Membership != m || e.ID != id {
		t.Fatalf("joining %v: got event %+v, want MulticastJoined of that membership", group, e)
	}
	return e
}

// nothingMore checks that no event is queued, by having one queued that is
// known: events come in order.
func nothingMore(t *testing.T, ch *rdma.Channel) {
	t.Helper()
	id := Bind(t, ch, addr1())
	Join(t, ch, id, netip.MustParseAddr("239.255.255.1"), rdma.JoinOptions{})
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
}

// wantErrno checks an operation's error: its errno and what its text names.
func wantErrno(t *testing.T, err error, errno syscall.Errno, names ...string) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Errorf("got error %v, want errno %d (%v)", err, int(errno), errno)
		return
	}
	var op *rdma.OpError
	if !errors.As(err, &op) {
		t.Errorf("got error %v of type %T, want an *rdma.OpError", err, err)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q doesn't name %q", err, name)
		}
	}
}

// wantIGMP checks the users of a group on an interface.
func wantIGMP(t *testing.T, m Machine, path, link string, group netip.Addr, users int) {
	t.Helper()
	if got := m.IGMP(t, path, link)[group]; got != users {
		t.Errorf("users of %v on %s: got %d, want %d", group, link, got, users)
	}
}

// eventuallyIGMP is wantIGMP for what the kernel does later.
func eventuallyIGMP(t *testing.T, m Machine, path, link string, group netip.Addr, users int) {
	t.Helper()
	Eventually(t, "IGMP users of "+group.String()+" on "+link, func() bool {
		return m.IGMP(t, path, link)[group] == users
	})
}

// EventuallySwitch waits until the switch delivers a group to these devices' ports.
func EventuallySwitch(t *testing.T, m Machine, group netip.Addr, devices ...string) {
	t.Helper()
	Eventually(t, "the switch delivers "+group.String()+" to "+strings.Join(devices, ", "), func() bool {
		return slices.Equal(m.Switch(t, group), devices)
	})
}

// call is one that a queue pair got.
type call struct {
	Op   string
	MGID netip.Addr
	MLID uint16
}

// queuePair notes its calls, and fails where told to.
type queuePair struct {
	attachErr, detachErr error

	mu    sync.Mutex
	calls []call
}

func (q *queuePair) AttachMulticast(mgid netip.Addr, mlid uint16) error {
	q.note("attach", mgid, mlid)
	return q.attachErr
}

func (q *queuePair) DetachMulticast(mgid netip.Addr, mlid uint16) error {
	q.note("detach", mgid, mlid)
	return q.detachErr
}

func (q *queuePair) note(op string, mgid netip.Addr, mlid uint16) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(q.calls, call{op, mgid, mlid})
}

func (q *queuePair) want(t *testing.T, calls ...call) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if diff := cmp.Diff(calls, q.calls, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("calls of the queue pair (-want +got):\n%s", diff)
	}
}
