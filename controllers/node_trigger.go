package controllers

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// trigger is a source of requests that come from inside the agent: the
// runtime's sandboxes, the membership table, a plan's result. Adding never
// blocks, and a request that is already waiting is not added twice; requests
// from before the controller's start wait for it.
type trigger[request comparable] struct {
	mu      sync.Mutex
	pending map[request]struct{}
	wake    chan struct{}
}

func newTrigger[request comparable]() *trigger[request] {
	return &trigger[request]{pending: map[request]struct{}{}, wake: make(chan struct{}, 1)}
}

func (t *trigger[request]) Add(r request) {
	t.mu.Lock()
	t.pending[r] = struct{}{}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Start implements source.TypedSource.
func (t *trigger[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.wake:
			}
			t.mu.Lock()
			pending := t.pending
			t.pending = map[request]struct{}{}
			t.mu.Unlock()
			for r := range pending {
				queue.Add(r)
			}
		}
	}()
	return nil
}
