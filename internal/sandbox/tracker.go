// Package sandbox follows the sandboxes of a node's pods: the one authority on
// when a pod's memberships begin and end. Two sources tell the same truth: an
// NRI plugin, which hears of a sandbox's end before its network is torn down,
// and CRI's ListPodSandbox, polled, which catches whatever NRI missed.
// Where the runtimes differ, docs/design/cri-o.md says how.
//
// It knows nothing of Kubernetes' API server, so that all of this works while
// that is away. It never subscribes to CRI's event stream, where a slow reader
// stalls the runtime, and never asks the runtime to change anything.
//
// Rules for the NRI hooks, since the runtime calls them one after the other for
// the whole node: a hook never joins, never logs at the default level, never
// returns an error, and answers within HookLimit.
//
//	t := sandbox.NewTracker(sandbox.Options{CRIEndpoint: "unix:///run/containerd/containerd.sock", Stopping: leave})
//	go t.Run(ctx)
//	live, synced := t.Sandboxes()
package sandbox

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// DefaultPollInterval is the time between two polls of ListPodSandbox,
	// which the runtime answers from memory. kubelet polls as often.
	DefaultPollInterval = time.Second

	// HookLimit is the longest that an NRI hook takes. The runtime disconnects
	// a plugin after 2 s and holds up all other pods meanwhile.
	HookLimit = 500 * time.Millisecond

	// stoppingLimit leaves the hook time to answer after Stopping's context
	// has ended.
	stoppingLimit = HookLimit - 50*time.Millisecond
)

// Sandbox is a live pod sandbox. Its maps are shared: don't write to them.
type Sandbox struct {
	ID                            string
	PodUID, PodNamespace, PodName string
	// NetNS is the path of the sandbox's network namespace as the runtime
	// tells it; "" when the pod is on the host's network.
	NetNS string
	// Annotations are the pod's at the time when the sandbox was made.
	Annotations map[string]string
	// CreatedAt is when the runtime made it, or when NRI told of it.
	CreatedAt time.Time
}

// Options of a Tracker.
type Options struct {
	// CRIEndpoint is the runtime's socket, such as
	// unix:///run/containerd/containerd.sock. "": only NRI is listened to.
	CRIEndpoint string
	// NRISocket is the path of NRI's socket, such as /var/run/nri/nri.sock.
	// "": NRI is off. A socket that isn't there is looked for again.
	NRISocket string
	// NodeNetNS is the path of the node's own network namespace. A sandbox
	// whose namespace is that one is on the host's network: CRI-O pins the
	// host's namespace for such a pod, as if it were its own. "":
	// /proc/self/ns/net.
	NodeNetNS string

	// Stopping is called once for each sandbox that is about to stop, before
	// its network goes where NRI tells of it in time, or that was seen to have
	// stopped. The sandbox isn't among Sandboxes any more. It should return
	// before its context ends, HookLimit at most: the runtime waits for it.
	Stopping func(ctx context.Context, sandboxID string)
	// Changed is called after the set of sandboxes, or whether it is synced,
	// has changed. It must not block.
	Changed func()
	// Ending says whether a pod is being deleted or has completed. Optional.
	// CRI-O tells NRI of a sandbox's stop after its network has gone, and
	// containerd, once it was restarted, not at all for sandboxes that it made
	// before: once the last container of such a sandbox has stopped and its pod
	// is ending, the sandbox counts as stopped.
	Ending func(podNamespace, podName, podUID string) bool

	// PollInterval is DefaultPollInterval if 0.
	PollInterval time.Duration
	// Log gets one line when a source comes or goes. The zero value discards.
	Log logr.Logger
}

// Tracker keeps the set of live sandboxes. Safe for concurrent use.
type Tracker struct {
	opts Options
	log  logr.Logger

	stops sync.WaitGroup // running calls of Stopping

	mu       sync.Mutex
	set      set
	synced   bool
	criErr   error
	nriErr   error
	stopping map[string]chan struct{} // closed when Stopping has returned
}

// NewTracker returns a tracker that knows nothing until Run.
func NewTracker(opts Options) *Tracker {
	if opts.PollInterval <= 0 {
		opts.PollInterval = DefaultPollInterval
	}
	if opts.NodeNetNS == "" {
		opts.NodeNetNS = "/proc/self/ns/net"
	}
	if opts.Stopping == nil {
		opts.Stopping = func(context.Context, string) {}
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	if opts.Ending == nil {
		opts.Ending = func(string, string, string) bool { return false }
	}
	log := opts.Log
	if log.GetSink() == nil {
		log = logr.Discard()
	}
	t := &Tracker{opts: opts, log: log, set: newSet(), stopping: map[string]chan struct{}{}}
	if opts.CRIEndpoint != "" {
		t.criErr = errNotAsked
	}
	if opts.NRISocket != "" {
		t.nriErr = errNotAsked
	}
	return t
}

// Run follows both sources until ctx ends, then waits for the calls of
// Stopping that are under way. The error is of Options, before anything has
// begun; a runtime that is away is no error.
func (t *Tracker) Run(ctx context.Context) error {
	var p *poller
	if t.opts.CRIEndpoint != "" {
		var err error
		if p, err = newPoller(t); err != nil {
			return err
		}
	}
	var sources sync.WaitGroup
	if p != nil {
		sources.Go(func() { p.run(ctx) })
	}
	if t.opts.NRISocket != "" {
		sources.Go(func() { t.followNRI(ctx) })
	}
	<-ctx.Done()
	sources.Wait()
	t.stops.Wait()
	return nil
}

// Sandboxes lists the live sandboxes, the oldest first. synced is false until a
// full list was had once: until then what is missing may exist all the same.
// While the runtime is away, what was known last stays.
func (t *Tracker) Sandboxes() (live []Sandbox, synced bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.set.list(), t.synced
}

// Health tells why CRI, and why NRI, can't be followed at the moment; nil for
// what works or is off.
func (t *Tracker) Health() (cri, nri error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.criErr, t.nriErr
}

// begin adds a sandbox unless it is known, or has ended already.
func (t *Tracker) begin(s Sandbox, seenByCRI bool) {
	if s.NetNS != "" && sameFile(s.NetNS, t.opts.NodeNetNS) {
		s.NetNS = ""
	}
	t.mu.Lock()
	added := t.set.begin(s, seenByCRI)
	t.mu.Unlock()
	if added {
		t.opts.Changed()
	}
}

// sameFile is false where either isn't there.
func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// end takes a sandbox out of the set, for good, and has Stopping called. The
// returned channel is closed when Stopping has returned: also for a second
// caller that comes meanwhile, since NRI's hook has to hold the runtime until
// the leaves are out even where the poll was faster.
func (t *Tracker) end(id string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done, ok := t.stopping[id]; ok {
		return done
	}
	done := make(chan struct{})
	if !t.set.end(id) {
		close(done)
		return done
	}
	t.stopping[id] = done
	t.stops.Go(func() {
		// Not derived from Run's context: an agent that is told to end while a
		// pod stops still leaves for that pod.
		ctx, cancel := context.WithTimeout(context.Background(), stoppingLimit)
		defer cancel()
		t.opts.Stopping(ctx, id)
		t.mu.Lock()
		delete(t.stopping, id)
		t.mu.Unlock()
		close(done)
		t.opts.Changed()
	})
	return done
}

// endInHook is end, waiting for at most HookLimit.
func (t *Tracker) endInHook(ctx context.Context, id string) {
	limit := time.NewTimer(HookLimit)
	defer limit.Stop()
	select {
	case <-t.end(id):
	case <-limit.C:
	case <-ctx.Done():
	}
}

// setSynced reports the first full list.
func (t *Tracker) setSynced() {
	t.mu.Lock()
	changed := !t.synced
	t.synced = true
	t.mu.Unlock()
	if changed {
		t.opts.Changed()
	}
}

// lives reports whether a sandbox is in the set.
func (t *Tracker) lives(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.set.live[id]
	return ok
}

// forget drops what is known of ended sandboxes that the runtime has forgotten.
func (t *Tracker) forget(exist map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.set.ended {
		if !exist[id] {
			delete(t.set.ended, id)
		}
	}
}
