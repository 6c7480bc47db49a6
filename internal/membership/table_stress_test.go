package membership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// TestStress changes what is wanted, from several goroutines and in real time,
// while joins and leaves fail: in the end the kernel has exactly what is wanted.
// For the race detector, above all.
func TestStress(t *testing.T) {
	const groups, rounds = 12, 300
	node := rdmatest.NewFabric().AddNode("node-1")
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.1/24"))
	node.AddNetNS(netns)
	node.AddMACVLAN(netns, "net1", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
	ms := time.Millisecond
	var p counts
	var table *Table
	table = NewTable(TableOptions{
		Host: node.Host(), Protocol: &p, Changed: func() { table.Snapshot() },
		FirstRetry: ms, RetryMax: 4 * ms, ProtocolRetryMax: 4 * ms, OpenRetry: ms, LeaveSettle: ms,
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- table.Run(ctx) }()

	random := func() []Wanted {
		var list []Wanted
		for i := range groups {
			if rand.N(3) == 0 {
				continue
			}
			w := want(fmt.Sprint("g", i), fmt.Sprintf("239.2.0.%d", i))
			if i%2 == 0 {
				onNode(&w)
			}
			if rand.N(4) == 0 {
				w.Mode = rdma.SendOnlyFullMember
			}
			w.GroupUID += fmt.Sprint("-", rand.N(2))
			w.Generation = rand.Int64N(3) + 1
			list = append(list, w)
		}
		return list
	}
	var workers sync.WaitGroup
	workers.Go(func() {
		for range rounds {
			table.Apply(random())
			time.Sleep(rand.N(2 * ms))
		}
	})
	workers.Go(func() {
		for range rounds / 10 {
			if err := table.LeaveScope(ctx, "s-1"); err != nil {
				t.Error(err)
			}
			time.Sleep(rand.N(10 * ms))
		}
	})
	workers.Go(func() {
		ops := []rdmatest.Op{rdmatest.OpJoin, rdmatest.OpJoinEvent, rdmatest.OpLeave, rdmatest.OpBind}
		for range rounds / 3 {
			node.Inject(rdmatest.Fault{Op: ops[rand.N(len(ops))], Err: syscall.EIO, Times: 1})
			node.FailMemberships(netip.MustParseAddr(fmt.Sprintf("239.2.0.%d", rand.N(groups))), syscall.ENETRESET)
			time.Sleep(rand.N(4 * ms))
		}
	})
	workers.Wait()

	table.Apply(nil) // the sandbox's end is known now
	last := random()
	table.Apply(last)
	eventually(t, "everything wanted is joined, and nothing else", func() bool {
		for _, s := range table.Snapshot() {
			if s.State != Joined {
				return false
			}
		}
		full := 0
		for _, w := range last {
			if w.Mode == rdma.FullMember {
				full++
			}
		}
		return len(table.Snapshot()) == len(last) && len(node.Memberships()) == len(last) &&
			len(node.IGMP("", "rdma0"))+len(node.IGMP(netns, "net1")) == full
	})
	table.Apply(nil)
	eventually(t, "nothing is held", func() bool { return len(table.Held()) == 0 })
	if m := node.Memberships(); len(m) != 0 {
		t.Errorf("memberships left over: %+v", m)
	}
	if _, ids, namespaces := node.OpenHandles(); ids+namespaces != 0 {
		t.Errorf("%d ids and %d namespaces left open", ids, namespaces)
	}
	if err := p.check(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if files, _, _ := node.OpenHandles(); files != 0 {
		t.Errorf("%d files left open", files)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// counts is a cluster's side that fails every now and then, and checks that
// calls for one group don't overlap.
type counts struct {
	mu     sync.Mutex
	begun  map[string]bool
	inCall map[string]bool
	err    error
}

func (c *counts) enter(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun == nil {
		c.begun, c.inCall = map[string]bool{}, map[string]bool{}
	}
	if c.inCall[uid] {
		c.err = fmt.Errorf("two calls at once for %s", uid)
	}
	c.inCall[uid] = true
}

func (c *counts) leave(uid string, begun bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inCall[uid] = false
	if rand.N(5) == 0 {
		c.begun[uid] = c.begun[uid] || begun // the entry may stand
		return errAway
	}
	c.begun[uid] = begun
	return nil
}

func (c *counts) Begin(_ context.Context, uid, _, _ string, _ int64) error {
	c.enter(uid)
	return c.leave(uid, true)
}

func (c *counts) End(_ context.Context, uid string) error {
	c.enter(uid)
	return c.leave(uid, false)
}

// check says whether an entry stands though nothing is held.
func (c *counts) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, begun := range c.begun {
		if begun {
			return fmt.Errorf("the entry of %s still stands", uid)
		}
	}
	return c.err
}
