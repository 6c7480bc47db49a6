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

// call runs a call of rdma_cm when there is a place for it.
func (t *Table) call(f func()) {
	select {
	case t.calls <- struct{}{}:
		defer func() { <-t.calls }()
	default:
		timer := time.NewTimer(callPatience)
		select {
		case t.calls <- struct{}{}:
			defer func() { <-t.calls }()
		case <-timer.C:
		}
		timer.Stop()
	}
	f()
}
