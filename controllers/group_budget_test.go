package controllers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func lease(version string, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{UID: "lease", ResourceVersion: version},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds},
	}
}

func named(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

func drain(q *sumQueue) []string {
	var order []string
	for {
		group, ok := q.next()
		if !ok {
			return order
		}
		order = append(order, group.Name)
	}
}

func TestSumQueueOrder(t *testing.T) {
	for name, tc := range map[string]struct {
		add  []string // "!": urgent
		want []string
	}{
		"first come":           {[]string{"a", "b", "c"}, []string{"a", "b", "c"}},
		"urgent ones first":    {[]string{"a", "b", "!c", "!d"}, []string{"c", "d", "a", "b"}},
		"once":                 {[]string{"a", "a", "!b", "!b"}, []string{"b", "a"}},
		"becomes urgent":       {[]string{"a", "b", "!b"}, []string{"b", "a"}},
		"stays urgent":         {[]string{"a", "!b", "b"}, []string{"b", "a"}},
		"urgent and alone":     {[]string{"a", "!a", "a"}, []string{"a"}},
		"nothing for nothing":  {nil, nil},
		"urgent after routine": {[]string{"a", "b", "!a"}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newSumQueue(1, 1)
			for _, group := range tc.add {
				urgent := group[0] == '!'
				if urgent {
					group = group[1:]
				}
				q.add(named(group), urgent)
			}
			if diff := cmp.Diff(tc.want, drain(q)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			q.add(named("a"), false)
			if diff := cmp.Diff([]string{"a"}, drain(q)); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

// In an hour of changes without end there are as many writes as the budget
// allows, in ticks of the clock; a transition passes all that waits; what is up
// to date costs nothing.
func TestSumQueueBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newSumQueue(2, 10)
		var mu sync.Mutex
		var writes []time.Duration
		var order []string
		start := time.Now()
		var done sync.WaitGroup
		done.Go(func() {
			q.run(ctx, func(_ context.Context, group types.NamespacedName) bool {
				if group.Name == "up to date" {
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				writes = append(writes, time.Since(start))
				order = append(order, group.Name)
				if group.Name != "transition" {
					q.add(group, false) // it has changed again
				}
				return true
			})
		})
		for _, name := range []string{"a", "b", "c", "d"} {
			q.add(named(name), false)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		if got, most := len(writes), 2*3600+10+1; got > most || got < most-2 {
			t.Errorf("%d writes in an hour, want about %d", got, most)
		}
		before := len(writes)
		mu.Unlock()
		q.add(named("up to date"), true)
		q.add(named("transition"), true)
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		if i := slices.Index(order[before:], "transition"); i != 0 {
			t.Errorf("the transition was written as number %d after it came: %v", i, order[before:])
		}
		mu.Unlock()
		cancel()
		done.Wait()
	})
}
