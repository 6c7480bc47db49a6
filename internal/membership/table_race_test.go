package membership

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// These run in real time: what they look for is in between two steps of one
// goroutine, where a synctest bubble never stops it.

// ends counts the calls of End that found the node a member still.
type ends struct {
	node        *rdmatest.Node
	calls, torn atomic.Int64
}

func (*ends) Begin(context.Context, string, string, string, int64) error { return nil }

func (e *ends) End(context.Context, string) error {
	e.calls.Add(1)
	for range 100 { // the time of a write, in which nothing may be joined either
		if len(e.node.Memberships()) > 0 {
			e.torn.Add(1)
			break
		}
		runtime.Gosched()
	}
	return nil
}

func startInRealTime(t *testing.T, opts TableOptions) (*Table, *rdmatest.Node, *ends) {
	t.Helper()
	node := rdmatest.NewFabric().AddNode("node-1")
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.1/24"))
	e := &ends{node: node}
	opts.Host, opts.Protocol, opts.LeaveSettle = node.Host(), e, time.Millisecond
	table := NewTable(opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- table.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return table, node, e
}

// One pod of a group ends and the next one comes while the group is about to be
// ended on the node: its entry must not go while the node is a member.
func TestEntryStaysWhileJoined(t *testing.T) {
	table, _, e := startInRealTime(t, TableOptions{})
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 4 { // they make the table's lock a contended one
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					table.Snapshot()
					runtime.Gosched()
				}
			}
		})
	}
	w := want("a", "239.1.1.7", onNode)
	rounds := 0
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline) && e.torn.Load() == 0; rounds++ {
		table.Apply([]Wanted{w})
		for s := table.Snapshot(); len(s) == 1 && s[0].State != Joined && time.Now().Before(deadline); s = table.Snapshot() {
			runtime.Gosched()
		}
		table.Apply(nil)
		for len(table.Snapshot()) > 0 {
			runtime.Gosched()
		}
		for range rounds % 50 {
			runtime.Gosched()
		}
	}
	close(stop)
	others.Wait()
	if e.torn.Load() > 0 || e.calls.Load() == 0 {
		t.Errorf("%d of %d entries were taken away while the node was a member, in %d rounds", e.torn.Load(), e.calls.Load(), rounds)
	}
}

// A process that stands still for longer than a backoff (SIGSTOP, a paused
// machine) tries again all the same.
func TestRetryAfterAStall(t *testing.T) {
	joined := make(chan struct{})
	var table *Table
	var once sync.Once
	var mu sync.Mutex
	opts := TableOptions{FirstRetry: 1, RetryMax: 1, Changed: func() {
		mu.Lock()
		defer mu.Unlock()
		if table == nil {
			return
		}
		for _, s := range table.Snapshot() {
			if s.State == Joined {
				once.Do(func() { close(joined) })
			}
		}
	}}
	mu.Lock()
	running, node, _ := startInRealTime(t, opts)
	table = running
	mu.Unlock()
	node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EAGAIN, Times: 5})
	running.Apply([]Wanted{want("a", "239.1.1.7", onNode)})
	select {
	case <-joined:
	case <-time.After(30 * time.Second):
		t.Errorf("not joined, with a backoff of 1 ns: %+v", running.Snapshot())
	}
}
