package controllers

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// sumQueue is the one budget for writing sums. Every write of a group's status
// wakes every agent of the cluster, so the number of those that only tell
// numbers is bounded for the whole cluster and not per group. Groups whose
// condition Ready changes go before those in which only a number does; within
// each, first come, first served. A group waits once, however often it changes.
type sumQueue struct {
	limiter *rate.Limiter

	mu      sync.Mutex
	urgent  []types.NamespacedName
	routine []types.NamespacedName
	waiting map[types.NamespacedName]bool // value: urgent

	wake chan struct{}
}

func newSumQueue(perSecond float64, burst int) *sumQueue {
	return &sumQueue{
		limiter: rate.NewLimiter(rate.Limit(perSecond), burst),
		waiting: map[types.NamespacedName]bool{},
		wake:    make(chan struct{}, 1),
	}
}

// add notes that a group's status has to be written.
func (q *sumQueue) add(group types.NamespacedName, urgent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	was, waits := q.waiting[group]
	switch {
	case waits && (was || !urgent):
		return
	case urgent:
		q.urgent = append(q.urgent, group) // its place among the routine ones is passed over
	default:
		q.routine = append(q.routine, group)
	}
	q.waiting[group] = urgent
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next takes the group that is to be written next.
func (q *sumQueue) next() (group types.NamespacedName, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.urgent)+len(q.routine) > 0 {
		urgent := len(q.urgent) > 0
		if urgent {
			group, q.urgent = q.urgent[0], q.urgent[1:]
		} else {
			group, q.routine = q.routine[0], q.routine[1:]
		}
		if was, waits := q.waiting[group]; waits && was == urgent {
			delete(q.waiting, group)
			return group, true
		}
	}
	return types.NamespacedName{}, false
}

// run has groups written within the budget until ctx ends. write tells whether
// it wrote: what turned out to be up to date costs nothing.
func (q *sumQueue) run(ctx context.Context, write func(context.Context, types.NamespacedName) (wrote bool)) {
	for {
		// The budget first, the group then: what is urgent by the time that a
		// write may be made goes first.
		if err := q.limiter.Wait(ctx); err != nil {
			return
		}
		for wrote := false; !wrote; {
			group, ok := q.next()
			if ok {
				wrote = write(ctx, group)
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-q.wake:
			}
		}
	}
}
