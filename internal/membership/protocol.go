package membership

import (
	"context"
	"errors"
	"time"
)

// Protocol is the cluster's side of the leave protocol. For one group, calls
// are made one after the other; for different groups, at the same time.
type Protocol interface {
	// Begin is called before the first join of a group on this node: the node
	// announces itself, then looks whether the group is still there. nil: join.
	// ErrGroupGone: the announcement was taken back. After any other error it
	// may stand, and End or Begin will be called.
	Begin(ctx context.Context, groupUID, namespace, name string, generation int64) error
	// End is called after the last leave of a group on this node, until it
	// succeeds. What isn't announced is taken back without an error.
	End(ctx context.Context, groupUID string) error
}

// ErrGroupGone is Begin's answer when there is no such group any more, or not
// in the generation that was asked for.
var ErrGroupGone = errors.New("the group is gone or has changed")

// protocolTimeout bounds one call of Protocol.
const protocolTimeout = 30 * time.Second

// entry is the cluster's side of one group on this node.
type entry struct {
	t               *Table
	uid             string
	namespace, name string
	wake            chan struct{}

	// Guarded by Table.mu.
	generation int64
	users      map[*slot]struct{} // that join, are joined, or are leaving
	begun      bool
	owed       bool // Begin was called, and End hasn't succeeded since
	err        error
	nudged     bool
	stuck      bool               // End has failed
	cancel     context.CancelFunc // of the Begin under way
}

// acquire makes a slot a user of its group.
func (t *Table) acquire(w *Wanted, s *slot) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[w.GroupUID]
	if e == nil {
		e = &entry{
			t: t, uid: w.GroupUID, namespace: w.GroupNamespace, name: w.GroupName,
			wake: make(chan struct{}, 1), users: map[*slot]struct{}{},
		}
		t.entries[w.GroupUID] = e
		if ctx := t.ctx; ctx != nil { // else the slot is about to end with Run
			t.work.Go(func() { e.run(ctx) })
		}
	}
	e.users[s] = struct{}{}
	e.generation = max(e.generation, w.Generation)
	e.poke()
	return e
}

// release ends that, once the slot has left.
func (t *Table) release(e *entry, s *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(e.users, s)
	if len(e.users) == 0 && e.cancel != nil {
		e.cancel()
	}
	e.poke()
}

// state reports whether joining is allowed, and the last error if not.
func (e *entry) state() (begun bool, err error) {
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	return e.begun, e.err
}

func (e *entry) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// nudge has a Begin that waits for its backoff tried again soon; t.mu is held.
func (e *entry) nudge() {
	if !e.begun && len(e.users) > 0 && e.err != nil {
		e.nudged = true
		e.poke()
	}
}

// run calls Begin while there are users and End when there are none, each until
// it succeeds; then the group is forgotten.
func (e *entry) run(ctx context.Context) {
	retry := backoff{min: e.t.opts.FirstRetry, max: e.t.opts.ProtocolRetryMax}
	var last, next time.Time // attempts
	var tried int64          // generation of the last Begin
	var was bool             // the last attempt was to begin
	for {
		e.t.mu.Lock()
		use, nudged, generation := len(e.users) > 0, e.nudged, e.generation
		e.nudged = false
		if !use {
			e.begun, e.err = false, nil // whoever comes from here on has to begin anew
		}
		idle := use && e.begun
		if !use && !e.owed {
			delete(e.t.entries, e.uid)
			e.t.touch()
			e.t.mu.Unlock()
			return
		}
		e.t.mu.Unlock()

		switch {
		case use != was, use && generation != tried:
			next = time.Time{}
			retry.reset()
		case nudged:
			next = earlier(next, last.Add(e.t.opts.FirstRetry))
		}
		wait := time.Until(next)
		if !idle && wait <= 0 {
			last = time.Now()
			was, tried = use, generation
			var err error
			if use {
				err = e.begin(ctx, generation)
			} else {
				err = e.end(ctx)
			}
			if err == nil {
				retry.reset()
				next = time.Time{}
			} else {
				next = time.Now().Add(retry.next())
			}
			continue
		}
		var due <-chan time.Time
		if !idle {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-due:
		}
	}
}

func (e *entry) begin(ctx context.Context, generation int64) error {
	ctx, cancel := context.WithTimeout(ctx, protocolTimeout)
	defer cancel()
	e.t.mu.Lock()
	e.owed, e.cancel = true, cancel
	if len(e.users) == 0 {
		cancel()
	}
	e.t.mu.Unlock()

	err := e.t.opts.Protocol.Begin(ctx, e.uid, e.namespace, e.name, generation)

	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	e.cancel = nil
	e.begun, e.err = err == nil, err
	if errors.Is(err, ErrGroupGone) {
		e.owed = false
	}
	for s := range e.users {
		s.poke()
	}
	e.t.touch()
	return err
}

func (e *entry) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, protocolTimeout)
	defer cancel()
	err := e.t.opts.Protocol.End(ctx, e.uid)

	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	if err == nil {
		e.owed, e.stuck = false, false
		return nil
	}
	if !e.stuck {
		e.stuck = true
		e.t.log.Error(err, "Can't take back the announcement of a group; tried again", "group", e.namespace+"/"+e.name, "uid", e.uid)
	}
	return err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
