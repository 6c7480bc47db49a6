package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// The defaults of TableOptions.
const (
	DefaultFirstRetry = time.Second
	DefaultRetryMax   = 30 * time.Second
	// DefaultProtocolRetryMax is shorter: a pod's start waits for an API server
	// that has come back.
	DefaultProtocolRetryMax = 5 * time.Second
	DefaultOpenRetry        = time.Second
	// DefaultLeaveSettle: the kernel sends an IGMPv3 leave from a timer of two
	// jiffies, 20 ms at HZ=100. An interface that is deleted before takes the
	// leave with it, and the switch keeps delivering for minutes.
	DefaultLeaveSettle = 40 * time.Millisecond
	// DefaultJoinInterval and DefaultJoinBurst: 2,000 memberships are joined
	// anew in 20 s, each port sending its subnet manager 100 requests a second,
	// and as many for first joins.
	DefaultJoinInterval = 10 * time.Millisecond
	DefaultJoinBurst    = 32
)

// TableOptions are a Table's. Durations of 0 stand for the defaults.
type TableOptions struct {
	Host     *rdma.Host
	Protocol Protocol
	// Changed is called when Snapshot, Held or Available would answer
	// something new: not under a lock, from one goroutine, several changes in
	// one call, at most fifty times a second. Optional.
	Changed func()
	// Log gets one line per transition of a membership. The zero value discards.
	Log logr.Logger

	// EpochBase is what epochs are greater than. A process that gives the time of
	// its start in milliseconds since 1970 has epochs greater than those of the
	// processes before it, without having to store them.
	EpochBase int64

	// JoinTimeout is a join's deadline; rdma.DefaultJoinTimeout if 0.
	JoinTimeout time.Duration
	// FirstRetry and RetryMax bound the backoff of failed joins, which doubles
	// and has jitter.
	FirstRetry, RetryMax time.Duration
	// ProtocolRetryMax bounds the backoff of Protocol's calls; it begins with
	// FirstRetry.
	ProtocolRetryMax time.Duration
	// OpenRetry is the time between two attempts at opening rdma_cm.
	OpenRetry time.Duration
	// LeaveSettle is how long LeaveScope waits after the last leave.
	LeaveSettle time.Duration
	// JoinInterval is the time between two joins on one InfiniBand port, first
	// ones and others counted apart, of which JoinBurst can be made at once after
	// a quiet time.
	JoinInterval time.Duration
	JoinBurst    int
}

// Status of one membership.
type Status struct {
	// Wanted is what is wanted; with Leaving, what was.
	Wanted
	State State
	// Message says why it isn't joined; "" when it is.
	Message string
	// Err is the error behind Message, if there is one.
	Err error
	// Params are those of the last join; zero until there was one.
	Params rdma.Params
	// Epoch grows with each join of the Key, from EpochBase on, also where it
	// wasn't wanted meanwhile; 0 until there was one.
	Epoch int64
}

// Table holds a node's memberships and makes them be as wanted. Each one that
// has something to do has a goroutine of its own, and so has each group for the
// cluster's side: what one waits for never delays another. Safe for concurrent use.
type Table struct {
	opts TableOptions
	log  logr.Logger

	changed chan struct{}
	calls   chan struct{}  // see call
	work    sync.WaitGroup // the goroutines of slots and entries

	// mu guards what follows and is never held during a call that can block.
	mu        sync.Mutex
	ctx       context.Context // Run's, while it runs
	started   bool
	over      bool
	channel   *rdma.Channel // nil: there is none
	available error         // why there is none
	slots     map[Key]*slot
	sorted    []*slot           // slots by Key; nil: to be made anew
	entries   map[string]*entry // by group UID
	ports     map[portKey]*port
	byID      map[*rdma.ID]*port
	// ended are the scopes that LeaveScope was called for, until Apply doesn't
	// mention them any more.
	ended map[string]bool
	// ending is closed, and made anew, whenever a scope is added to ended.
	ending chan struct{}
	// epoch is the highest that a membership had that is forgotten.
	epoch int64
	// lastLeave is when a sandbox's interface was last left as a full member.
	lastLeave time.Time
	pacer     pacer
}

// NewTable returns a table that does nothing until Run.
func NewTable(opts TableOptions) *Table {
	setDefault := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	setDefault(&opts.JoinTimeout, rdma.DefaultJoinTimeout)
	setDefault(&opts.FirstRetry, DefaultFirstRetry)
	setDefault(&opts.RetryMax, DefaultRetryMax)
	setDefault(&opts.ProtocolRetryMax, DefaultProtocolRetryMax)
	setDefault(&opts.OpenRetry, DefaultOpenRetry)
	setDefault(&opts.LeaveSettle, DefaultLeaveSettle)
	setDefault(&opts.JoinInterval, DefaultJoinInterval)
	if opts.JoinBurst <= 0 {
		opts.JoinBurst = DefaultJoinBurst
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	log := opts.Log
	if log.GetSink() == nil {
		log = logr.Discard()
	}
	return &Table{
		opts: opts, log: log,
		changed:   make(chan struct{}, 1),
		calls:     make(chan struct{}, callsAtOnce),
		available: errNotOpened,
		slots:     map[Key]*slot{},
		entries:   map[string]*entry{},
		ports:     map[portKey]*port{},
		byID:      map[*rdma.ID]*port{},
		ended:     map[string]bool{},
		ending:    make(chan struct{}),
		epoch:     opts.EpochBase,
		pacer:     pacer{interval: opts.JoinInterval, burst: opts.JoinBurst, next: map[stream]time.Time{}},
	}
}

var errNotOpened = errors.New("rdma_cm hasn't been opened yet")

// Run owns the event channel and makes memberships be as wanted until ctx
// ends. Then it closes every id, which leaves everything, without calling
// Protocol.End: the cluster's entries stay for the next process to take over or
// take away. It can be called once.
func (t *Table) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mu.Lock()
	if t.started {
		t.mu.Unlock()
		return errors.New("membership: Table.Run was called twice")
	}
	t.started, t.ctx = true, ctx
	for _, s := range t.slots {
		s.poke()
	}
	t.mu.Unlock()

	var notifying sync.WaitGroup
	notifying.Go(func() { t.notify(ctx) })
	channel := t.followChannel(ctx)

	t.mu.Lock()
	t.over, t.ctx = true, nil
	t.mu.Unlock()
	t.work.Wait()
	notifying.Wait()
	err := t.closeAll(channel)

	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.slots)
	t.sorted = nil
	clear(t.entries)
	t.channel, t.available = nil, errNotOpened
	return err
}

// changedInterval is the shortest time between two calls of Changed.
const changedInterval = 20 * time.Millisecond

// notify calls Changed.
func (t *Table) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
			t.opts.Changed()
		}
		select { // what a thousand joins change costs a few dozen plannings
		case <-ctx.Done():
		case <-time.After(changedInterval):
		}
	}
}

// touch makes notify call Changed.
func (t *Table) touch() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Apply sets what is wanted and returns at once. What isn't in the list is
// left. Calls come one after the other, and each list is made from what was
// known after the call before had returned.
func (t *Table) Apply(wanted []Wanted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	list := make(map[Key]Wanted, len(wanted))
	scopes := map[string]bool{}
	for _, w := range wanted {
		scopes[w.Scope] = true
		if !t.ended[w.Scope] {
			list[w.Key] = w
		}
	}
	for scope := range t.ended {
		if !scopes[scope] {
			delete(t.ended, scope) // whoever makes the lists has seen its end
		}
	}
	for key, s := range t.slots {
		if _, ok := list[key]; !ok {
			s.want(nil)
		}
	}
	for key, w := range list {
		s, ok := t.slots[key]
		if !ok {
			s = newSlot(t, w)
			t.slots[key], t.sorted = s, nil
			s.poke()
			t.touch()
			continue
		}
		s.want(&w)
	}
	for _, e := range t.entries {
		e.nudge()
	}
}

// LeaveScope leaves everything of a sandbox that is about to stop, and joins
// nothing there any more. It returns when all is left and the kernel has had
// the time to send the last IGMP leave, or when ctx ends; leaving goes on then,
// and the error says how much is missing. NRI's StopPodSandbox calls it.
//
// A sandbox ID never lives twice: once Apply doesn't mention it any more, the
// table forgets that it ended.
func (t *Table) LeaveScope(ctx context.Context, scope string) error {
	if scope == NodeScope {
		return errors.New("membership: LeaveScope is for sandboxes, not for the node's own namespace")
	}
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return nil
	}
	t.ended[scope] = true
	close(t.ending)
	t.ending = make(chan struct{})
	var leaving []*slot
	for key, s := range t.slots {
		if key.Scope != scope {
			continue
		}
		s.want(nil)
		s.poke()          // it may be waiting to leave in a way that takes longer
		if t.ctx == nil { // Run hasn't begun, nothing is joined
			delete(t.slots, key)
			t.sorted = nil
			continue
		}
		leaving = append(leaving, s)
	}
	t.mu.Unlock()

	for i, s := range leaving {
		select {
		case <-s.gone:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d memberships of sandbox %s aren't left yet: %w", len(leaving)-i, len(leaving), scope, ctx.Err())
		}
	}
	t.mu.Lock()
	settled := t.lastLeave.Add(t.opts.LeaveSettle)
	t.mu.Unlock()
	if wait := time.Until(settled); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("the IGMP leaves of sandbox %s may not be out yet: %w", scope, ctx.Err())
		}
	}
	return nil
}

// Renew leaves and joins anew what is joined on a port whose network has
// forgotten it without anybody being told: an Ethernet port whose carrier was
// lost and came back. The switch has dropped its entries, and the kernel doesn't
// report its groups again. Send-only members have reported nothing.
func (t *Table) Renew(port Port) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		if s.wanted != nil && s.status.State == Joined && s.wanted.Mode == rdma.FullMember &&
			(Port{s.wanted.Device, s.wanted.Port}) == port {
			s.renew = true
			s.poke()
		}
	}
}

// Snapshot is the status of every membership that is wanted or not left yet,
// sorted by Key.
func (t *Table) Snapshot() []Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Whoever waits for the lock meanwhile are the memberships themselves: with
	// some thousand of them a sort of all that is copied would be most of the
	// time that joining takes.
	if t.sorted == nil {
		t.sorted = slices.SortedFunc(maps.Values(t.slots), func(a, b *slot) int { return a.key.compare(b.key) })
	}
	out := make([]Status, len(t.sorted))
	for i, s := range t.sorted {
		out[i] = s.status
	}
	return out
}

// Held are the UIDs of the groups for which Begin was called, or is about to
// be, and End hasn't succeeded since, sorted: an entry of any other group is
// an earlier process's.
func (t *Table) Held() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.entries))
}

// Available says why rdma_cm can't be used at all; nil when it can. It is
// tried again until it can.
func (t *Table) Available() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.available
}
