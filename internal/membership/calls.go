package membership

import "time"

const (
	// callsAtOnce bounds the calls of rdma_cm under way: the kernel serialises
	// most of each, and a thread for every one of a full node's memberships costs
	// more than it gains.
	callsAtOnce = 8
	// callPatience is how long a call waits for a place: those that have one may
	// all be stuck, which must not keep others from anything.
	callPatience = time.Second
)

// call runs a call of rdma_cm for a scope when there is a place for it. A
// sandbox that stops doesn't wait: the runtime does, for it.
func (t *Table) call(scope string, f func()) {
	if t.place(scope) {
		defer func() { <-t.calls }()
	}
	f()
}

// place takes a place, and reports whether it did.
func (t *Table) place(scope string) bool {
	select {
	case t.calls <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(callPatience)
	defer timer.Stop()
	for {
		t.mu.Lock()
		ended, ending := t.ended[scope], t.ending
		t.mu.Unlock()
		if ended {
			return false
		}
		select {
		case t.calls <- struct{}{}:
			return true
		case <-ending: // it may be this one's
		case <-timer.C:
			return false
		}
	}
}
