package controllers

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

const (
	// selfTestTimeout bounds the test on one interface.
	selfTestTimeout = 30 * time.Second
	// selfTestParallel is how many interfaces are tested at a time.
	selfTestParallel = 4
	// maxSelfTests bounds how many interfaces are tested.
	maxSelfTests = maxNodeDevices
	// selfTestTries is how often a failure has to be seen: two agents of one node
	// that test at the same time, during an upgrade, disturb each other's counts.
	selfTestTries = 3
	// The bounds of the time until a test is tried again.
	firstSelfTestRetry   = 2 * time.Second
	longestSelfTestRetry = 5 * time.Minute
)

// NodeSelfTest tries multicast out on each RDMA interface of the node's own, once
// it is there: beside everything else, holding up nobody's join.
type NodeSelfTest struct {
	// Host and NodeNetNS are NodePlannerOptions'.
	Host      *rdma.Host
	NodeNetNS string
	// Group is the scratch group.
	Group   netip.Addr
	Metrics *NodeMetrics
	Log     logr.Logger

	changed func() // results have

	wake chan struct{}
	mu   sync.Mutex
	// tests by interface; those of interfaces that are gone are forgotten.
	tests map[testedInterface]*selfTestState
}

// testedInterface is an interface that is tested once: one that was made anew
// has another index.
type testedInterface struct {
	name   string
	index  int
	device string
	port   int
}

type selfTestState struct {
	done    bool          // for good
	problem *rdma.Problem // of the last try
	tries   int
	failed  int // tries, one after the other, that told of what doesn't go by itself
	due     time.Time
}

func (n *NodeSelfTest) init(changed func()) {
	n.changed, n.wake, n.tests = changed, make(chan struct{}, 1), map[testedInterface]*selfTestState{}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (n *NodeSelfTest) NeedLeaderElection() bool { return false }

// setInterfaces tells which interfaces the node has.
func (n *NodeSelfTest) setInterfaces(interfaces []rdma.Interface) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tests := make(map[testedInterface]*selfTestState, len(interfaces))
	for _, i := range interfaces[:min(len(interfaces), maxSelfTests)] {
		key := testedInterface{i.Name, i.Index, i.Device, i.Port}
		if tests[key] = n.tests[key]; tests[key] == nil {
			tests[key] = &selfTestState{}
		}
	}
	if !maps.Equal(tests, n.tests) {
		n.tests = tests
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// Start tests until ctx ends.
func (n *NodeSelfTest) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		case <-timer.C:
		}
		due, next := n.due(time.Now())
		if len(due) == 0 {
			timer.Reset(next)
			continue
		}
		var work sync.WaitGroup
		places := make(chan struct{}, selfTestParallel)
		for _, i := range due {
			places <- struct{}{}
			work.Go(func() {
				n.test(ctx, i)
				<-places
			})
		}
		work.Wait()
		n.changed()
		timer.Reset(0)
	}
}

// due are the interfaces to be tested now, or how long to wait for one.
func (n *NodeSelfTest) due(now time.Time) (due []testedInterface, next time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next = longestSelfTestRetry
	for i, s := range n.tests {
		switch left := s.due.Sub(now); {
		case s.done:
		case left <= 0:
			due = append(due, i)
		default:
			next = min(next, left)
		}
	}
	slices.SortFunc(due, func(a, b testedInterface) int { return strings.Compare(a.name, b.name) })
	return due, next
}

func (n *NodeSelfTest) test(ctx context.Context, i testedInterface) {
	bounded, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	err := inNetNS(n.Host, n.NodeNetNS, func(ns *rdma.NetNS) error { return n.Host.SelfTest(bounded, ns, i.name, n.Group) })
	if ctx.Err() != nil {
		return // it wasn't tried to the end
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.tests[i]
	if s == nil {
		return // gone meanwhile
	}
	before := s.problem
	s.problem = nil
	if err != nil && !errors.As(err, &s.problem) {
		s.problem = &rdma.Problem{Reason: rdma.ReasonSelfTestFailed, Device: i.device, Port: i.port, Interface: i.name, Err: err}
	}
	if s.failed >= selfTestTries && s.problem != nil && s.problem.Reason.Temporary() {
		s.problem = before // which isn't over yet
	}
	s.tries++
	if s.failed++; s.problem == nil || s.problem.Reason.Temporary() {
		s.failed = 0
	}
	// An administrator may choose another version than RoCE v1 at any time.
	s.done = s.problem == nil || (s.failed >= selfTestTries && s.problem.Reason != rdma.ReasonRoCEv1)
	settled := s.problem == nil || s.failed == selfTestTries
	s.due = time.Now().Add(wait.Jitter(min(firstSelfTestRetry<<min(s.tries-1, 10), longestSelfTestRetry), 0.5))
	if settled {
		n.Metrics.selfTested(s.problem == nil)
	}
	switch {
	case s.problem == nil:
		n.Log.Info("self-test passed", "interface", i.name, "device", i.device, "group", n.Group)
	case settled, before == nil:
		n.Log.Info("self-test failed", "interface", i.name, "device", i.device, "group", n.Group,
			"reason", s.problem.Reason, "message", oneLine(s.problem.Error()), "triedAgain", !s.done)
	}
}

// results are the problems that stay or may go, by interface's name, the number
// of interfaces that passed, and whether any is still to be tested.
func (n *NodeSelfTest) results() (problems []*rdma.Problem, passed int, pending bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.tests {
		switch {
		case s.done && s.problem == nil:
			passed++
		case s.failed >= selfTestTries, s.problem != nil && s.problem.Reason.Temporary():
			problems = append(problems, s.problem)
		}
		pending = pending || (!s.done && s.failed < selfTestTries)
	}
	slices.SortFunc(problems, func(a, b *rdma.Problem) int { return strings.Compare(a.Interface, b.Interface) })
	return problems, passed, pending
}
