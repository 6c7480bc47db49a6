package membership

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// env is a table on a simulated node, inside a synctest bubble: time is fake,
// and settle returns when nothing happens any more without time passing.
type env struct {
	t        *testing.T
	fabric   *rdmatest.Fabric
	node     *rdmatest.Node
	table    *Table
	protocol *protocol
	stop     func() // ends Run; what it held is checked
}

const netns = "/run/netns/s-1"

var groupA = netip.MustParseAddr("239.1.1.7")

// run is a test in a bubble. The node has an RDMA interface rdma0 of its own, and a
// pod's namespace with the macvlan net1. When f returns, Run is ended and
// nothing may be left of anything.
func run(t *testing.T, f func(e *env), change ...func(*TableOptions, *rdmatest.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fabric := rdmatest.NewFabric()
		node := fabric.AddNode("node-1")
		node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.1/24"))
		node.AddNetNS(netns)
		node.AddMACVLAN(netns, "net1", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
		p := &protocol{node: node, fail: map[string]error{}, hold: map[string]chan struct{}{}}
		opts := TableOptions{Host: node.Host(), Protocol: p}
		for _, c := range change {
			c(&opts, node)
		}
		table := NewTable(opts)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- table.Run(ctx) }()
		e := &env{t: t, fabric: fabric, node: node, table: table, protocol: p}
		e.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		synctest.Wait()
		f(e)
		e.stop()
		if m := node.Memberships(); len(m) != 0 {
			t.Errorf("memberships left over: %+v", m)
		}
		if files, ids, namespaces := node.OpenHandles(); files+ids+namespaces != 0 {
			t.Errorf("left open: %d files, %d ids, %d namespaces", files, ids, namespaces)
		}
	})
}

func (e *env) settle() { synctest.Wait() }

// want is a membership of group name (UID uid-NAME) in the pod's namespace.
func want(name, address string, change ...func(*Wanted)) Wanted {
	w := Wanted{
		Key:      Key{Scope: "s-1", Interface: "net1", PortSpace: rdma.PortSpaceUDP, Address: netip.MustParseAddr(address)},
		GroupUID: "uid-" + name, GroupNamespace: "default", GroupName: name, Generation: 1,
		NetNS: netns, BindAddr: netip.MustParseAddr("10.0.0.2"), Device: "rxe0", Port: 1, Holders: []string{"uid-p"},
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

// onNode moves it to the node's own interface.
func onNode(w *Wanted) {
	w.Scope, w.Interface, w.NetNS, w.BindAddr = NodeScope, "rdma0", "", netip.MustParseAddr("10.0.0.1")
}

func (e *env) apply(wanted ...Wanted) {
	e.table.Apply(wanted)
	e.settle()
}

// status is that of a group's membership; the zero Status if there is none.
func (e *env) status(name string) Status {
	for _, s := range e.table.Snapshot() {
		if s.GroupName == name {
			return s
		}
	}
	return Status{}
}

func (e *env) wantState(name string, state State) Status {
	e.t.Helper()
	s := e.status(name)
	if s.State != state {
		e.t.Fatalf("%s is %s (%s), want %s", name, s.State, s.Message, state)
	}
	if (s.Message == "") != (state == Joined || state == Joining || state == Leaving) {
		e.t.Errorf("%s is %s with message %q", name, s.State, s.Message)
	}
	return s
}

// wantIGMP checks the kernel's table of an interface.
func (e *env) wantIGMP(path, netdev string, want map[netip.Addr]int) {
	e.t.Helper()
	got := e.node.IGMP(path, netdev)
	if len(got) != len(want) {
		e.t.Fatalf("IGMP of %s: %v, want %v", netdev, got, want)
	}
	for a, n := range want {
		if got[a] != n {
			e.t.Fatalf("IGMP of %s: %v, want %v", netdev, got, want)
		}
	}
}

func (e *env) wantIDs(want int) {
	e.t.Helper()
	if files, ids, namespaces := e.node.OpenHandles(); ids != want || namespaces != 0 || files > 1 {
		e.t.Fatalf("open: %d files, %d ids, %d namespaces; want %d ids, one file and no namespace", files, ids, namespaces, want)
	}
}

func (e *env) wantCalls(want ...string) {
	e.t.Helper()
	if got := e.protocol.taken(); !slices.Equal(got, want) {
		e.t.Fatalf("calls of Protocol: %q, want %q", got, want)
	}
}

// protocol is the cluster's side, which notes its calls.
type protocol struct {
	node *rdmatest.Node

	mu    sync.Mutex
	calls []string
	fail  map[string]error         // by call
	hold  map[string]chan struct{} // by call: wait, or until ctx ends
}

func (p *protocol) call(ctx context.Context, what string) error {
	p.mu.Lock()
	err, hold := p.fail[what], p.hold[what]
	p.calls = append(p.calls, what)
	p.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (p *protocol) Begin(ctx context.Context, uid, namespace, name string, generation int64) error {
	return p.call(ctx, fmt.Sprintf("begin %s/%s %s %d", namespace, name, uid, generation))
}

func (p *protocol) End(ctx context.Context, uid string) error {
	return p.call(ctx, fmt.Sprintf("end %s, members %d", uid, len(p.node.Memberships())))
}

// taken are the calls since the last time.
func (p *protocol) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

func (p *protocol) set(call string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail[call] = err
}

// block makes a call wait until release.
func (p *protocol) block(call string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{})
	p.hold[call] = c
	return func() {
		p.mu.Lock()
		delete(p.hold, call)
		p.mu.Unlock()
		close(c)
	}
}

var errAway = errors.New("the API server is away")
