package membership

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// slot makes one membership be as wanted, from the first time that its Key is
// wanted until it is left.
type slot struct {
	t    *Table
	key  Key
	wake chan struct{}
	gone chan struct{} // closed when the slot has left and is forgotten

	// Guarded by Table.mu.
	wanted *Wanted // nil: leave
	fresh  bool    // wanted has changed in substance: a backoff is over
	// keepsFull: it is a full member although the pods left only send.
	keepsFull bool
	status    Status
	events    []rdma.Event
	renew     bool // leave, and join anew
	running   bool // there is a goroutine: none stays while there is nothing to do

	// The goroutine's own.
	entry    *entry
	port     *port // set while member is
	member   *rdma.Membership
	joined   Wanted    // what member was joined for
	joinedAt time.Time // zero until the join's event has come
	retry    backoff
	retryAt  time.Time
	paced    bool // retryAt is its place among the port's joins
	lost     bool // see repay
	repaying bool // member is for leaving alone
}

func newSlot(t *Table, w Wanted) *slot {
	if w.PortFull {
		w.Mode = rdma.FullMember
	}
	return &slot{
		t: t, key: w.Key,
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
		wanted: &w, status: Status{Wanted: w, State: Waiting},
		retry: backoff{min: t.opts.FirstRetry, max: t.opts.RetryMax},
	}
}

// same reports whether a membership that was joined for one serves the other.
func (w *Wanted) same(o *Wanted) bool {
	return w.GroupUID == o.GroupUID && w.Mode == o.Mode && w.NetNS == o.NetNS && w.BindAddr == o.BindAddr && w.Index == o.Index &&
		w.Device == o.Device && w.Port == o.Port
}

// want changes what is wanted; Table.mu is held.
func (s *slot) want(w *Wanted) {
	before := s.wanted
	if w == nil {
		if before != nil {
			s.wanted = nil
			s.setStatus(Leaving, "", nil)
			s.poke()
		}
		return
	}
	if s.keepsFull = s.staysFull(before, w); s.keepsFull || w.PortFull {
		full := *w
		full.Mode = rdma.FullMember
		w = &full
	}
	if before != nil && before.same(w) && before.Generation == w.Generation &&
		before.TrafficClass == w.TrafficClass && before.PortFull == w.PortFull && slices.Equal(before.Holders, w.Holders) {
		return
	}
	s.fresh = s.fresh || before == nil || !before.same(w) || before.Generation != w.Generation
	s.wanted = w
	s.status.Wanted = *w
	s.t.touch()
	s.poke()
}

// staysFull: a port that is shared by full and send-only members stays a full
// one until the last of them leaves, since going back would cost those that stay
// a rejoin. What the group or a pod itself has changed is followed.
func (s *slot) staysFull(before, w *Wanted) bool {
	if before == nil || before.GroupUID != w.GroupUID || before.Generation != w.Generation ||
		before.Mode != rdma.FullMember || w.Mode != rdma.SendOnlyFullMember {
		return false
	}
	return s.keepsFull || before.PortFull || slices.ContainsFunc(before.Holders, func(holder string) bool { return !slices.Contains(w.Holders, holder) })
}

// poke has step called; Table.mu is held.
func (s *slot) poke() {
	s.again()
	if ctx := s.t.ctx; ctx != nil && !s.running {
		s.running = true
		s.t.work.Go(func() { s.run(ctx) })
	}
}

// again has step called once more, from within it.
func (s *slot) again() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *slot) run(ctx context.Context) {
	for {
		wait, over := s.step()
		if over || (wait == 0 && s.rest()) {
			return
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return // Run closes the ids
		case <-s.wake:
		case <-due:
		}
	}
}

// rest ends the goroutine unless the slot was poked meanwhile.
func (s *slot) rest() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.running = len(s.wake) > 0
	return !s.running
}

// step does what there is to do, and returns how long to wait for the next
// (0: until poked).
func (s *slot) step() (wait time.Duration, over bool) {
	s.t.mu.Lock()
	want, fresh, events, renew := s.wanted, s.fresh, s.events, s.renew
	s.fresh, s.events, s.renew = false, nil, false
	var broken error
	if s.port != nil {
		broken = s.port.broken
	}
	s.t.mu.Unlock()

	for _, e := range events {
		s.event(e)
	}
	switch {
	case s.member == nil:
	case broken != nil:
		s.leave()
		s.fail(broken)
	case want == nil && s.awaitsRepaying():
		return 0, false
	case want == nil || !s.joined.same(want):
		s.leave()
	case renew:
		s.leave()
		fresh = true
	}
	if want == nil && s.member == nil && s.repay() {
		return 0, false
	}
	if s.entry != nil && (want == nil || want.GroupUID != s.entry.uid) {
		s.t.release(s.entry, s)
		s.entry = nil
	}
	if want == nil {
		return 0, s.end()
	}
	s.repaying = false
	if fresh {
		s.retry.reset()
		s.retryAt, s.paced = time.Time{}, false
	}
	if s.member != nil {
		s.stay()
		return 0, false
	}
	if wait := time.Until(s.retryAt); wait > 0 {
		return wait, false
	}
	if s.entry == nil || fresh {
		s.entry = s.t.acquire(want, s)
	}
	if begun, err := s.entry.state(); !begun {
		message := "announcing this node to the group"
		if err != nil {
			message = "can't announce this node to the group: " + err.Error()
		}
		s.set(Waiting, message, err)
		return 0, false
	}
	s.join(want)
	if s.retryAt.IsZero() {
		return 0, false
	}
	return max(time.Until(s.retryAt), time.Nanosecond), false
}

// join asks for the membership; the outcome comes as an event.
func (s *slot) join(want *Wanted) {
	s.retryAt = time.Time{} // that time has come; fail sets the next
	if wait := s.pace(want); wait > 0 {
		s.retryAt = time.Now().Add(wait)
		return
	}
	p, err := s.t.openPort(portKey{s.key.Scope, s.key.Interface, want.NetNS, want.BindAddr, want.Index, s.key.PortSpace})
	if errors.Is(err, errNoChannel) {
		if err := s.t.Available(); err != nil {
			s.set(Waiting, err.Error(), err)
		}
		return // poked when there is one
	}
	if err != nil {
		s.fail(err)
		return
	}
	if s.retry.attempts == 0 { // a state that was told as bad stays until it is good
		s.set(Joining, "", nil)
	}
	if err := s.joinOn(p, *want); err != nil {
		s.fail(err)
	}
}

// joinOn asks for the membership on a port, which is given back if that fails.
func (s *slot) joinOn(p *port, want Wanted) error {
	s.t.mu.Lock()
	p.members[s.key.group()] = s // before the join, whose event may come first
	s.t.mu.Unlock()
	var m *rdma.Membership
	var err error
	s.t.call(s.key.Scope, func() {
		m, err = s.key.group().join(p.id, rdma.JoinOptions{Mode: want.Mode, Timeout: s.t.opts.JoinTimeout})
	})
	if err != nil {
		s.t.unlistMember(p, s)
		s.t.closePort(p)
		return err
	}
	s.port, s.member, s.joined, s.joinedAt = p, m, want, time.Time{}
	s.again() // for what the port may have gone through meanwhile
	return nil
}

// event takes an event of the membership; one of an earlier membership means
// nothing any more.
func (s *slot) event(e rdma.Event) {
	if s.member == nil || e.Membership != s.member {
		return
	}
	if e.Type == rdma.MulticastError {
		if !rejoins && !s.joinedAt.IsZero() {
			return
		}
		s.lost = s.lost || errors.Is(e.Err, syscall.ENETRESET) && s.joined.losable() && !s.repaying
		s.leave()
		s.fail(e.Err)
		return
	}
	s.joinedAt, s.lost = time.Now(), false
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.status.Epoch == 0 {
		s.status.Epoch = s.t.epoch // greater than what an earlier one of the Key had
	}
	s.status.Epoch++
	s.status.Params = e.Params
	if s.wanted != nil {
		s.setStatus(Joined, "", nil)
	}
}

// leave ends the membership; where leaving fails, by closing its id, which
// costs the others on it a rejoin.
func (s *slot) leave() {
	p := s.port
	s.port, s.member = nil, nil
	if time.Since(s.joinedAt) > s.t.opts.RetryMax && !s.joinedAt.IsZero() {
		s.retry.reset() // it was good for long: this is a new failure
	}
	if !leaves {
		return
	}
	s.t.mu.Lock()
	broken := p.broken != nil
	s.t.mu.Unlock()
	if !broken {
		// With ENXIO or ENOENT the kernel has no such membership any more.
		var err error
		s.t.call(s.key.Scope, func() { err = s.key.group().leave(p.id) })
		if err != nil && !errors.Is(err, syscall.ENXIO) && !errors.Is(err, syscall.ENOENT) {
			s.t.log.Error(err, "Leaving failed; closing the id instead", names(&s.joined)...)
			broken = true
			s.t.mu.Lock()
			s.t.breakPort(p, errors.New("another group on the same id couldn't be left"))
			s.t.mu.Unlock()
		}
	}
	if broken {
		s.t.closeID(p) // not with the last one on it: this one has left when this returns
	}
	s.t.unlistMember(p, s)
	s.t.closePort(p)
	s.t.mu.Lock()
	if s.key.Scope != NodeScope && s.joined.Mode == rdma.FullMember {
		s.t.lastLeave = time.Now()
	}
	s.t.mu.Unlock()
}

// stay takes back a Leaving that was thought better of in time.
func (s *slot) stay() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.wanted == nil || s.status.State != Leaving {
		return
	}
	state := Joined
	if s.joinedAt.IsZero() {
		state = Joining
	}
	s.setStatus(state, "", nil)
}

// unlistMember ends the delivery of events to a slot.
func (t *Table) unlistMember(p *port, s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.members[s.key.group()] == s {
		delete(p.members, s.key.group())
	}
}

// end forgets the slot unless it is wanted again.
func (s *slot) end() bool {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.wanted != nil {
		return false // and poked
	}
	delete(s.t.slots, s.key)
	s.t.epoch = max(s.t.epoch, s.status.Epoch)
	s.t.sorted = nil
	s.t.touch()
	close(s.gone)
	return true
}

// fail notes why there is no membership and when to try again.
func (s *slot) fail(err error) {
	s.retryAt = time.Now().Add(s.retry.next())
	state := Failing
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, rdma.ErrUnavailable):
		state = Waiting // the port or IPoIB isn't ready
	case errors.Is(err, rdma.ENOTSUPP), errors.Is(err, syscall.ENOSYS):
		state = Refused // by the kind of port
	}
	s.set(state, err.Error(), err)
}

func (s *slot) set(state State, message string, err error) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.wanted != nil {
		s.setStatus(state, message, err)
	}
}

// setStatus tells of a transition; Table.mu is held.
func (s *slot) setStatus(state State, message string, err error) {
	if s.status.State != state {
		s.t.log.Info(string(state), append(names(&s.status.Wanted), "epoch", s.status.Epoch, "message", message)...)
	} else if s.status.Message == message && state != Joined {
		return
	}
	s.status.State, s.status.Message, s.status.Err = state, message, err
	s.t.touch()
}

func names(w *Wanted) []any {
	return []any{
		"group", w.GroupNamespace + "/" + w.GroupName, "address", w.Address,
		"interface", w.Interface, "scope", w.Scope,
	}
}
