package controllers

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// watched is a node with a pod's namespace, looked into with watches.
type watched struct {
	t    *testing.T
	node *rdmatest.Node
	scopeInterfaces
	woken chan struct{}
}

func newWatched(t *testing.T) *watched {
	w := &watched{t: t, node: rdmatest.NewFabric().AddNode("n"), woken: make(chan struct{}, 1)}
	w.node.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
	w.node.AddNetNS("/ns")
	w.node.AddMACVLAN("/ns", "net1", "eth1", netip.MustParsePrefix("192.0.2.2/24"))
	w.host = w.node.Host()
	w.watch = newInventoryWatch(w.host, "", func() {
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}, logr.Discard())
	t.Cleanup(func() {
		w.watch.closeAll()
		if n := w.node.OpenWatches(); n != 0 {
			t.Errorf("%d watches left open", n)
		}
	})
	return w
}

// look lists everything at a time, as a planning does, and returns what the
// pod's namespace has and when the next look is due.
func (w *watched) look(now time.Time) (membership.Interfaces, time.Duration) {
	w.t.Helper()
	w.told()
	if _, err := w.devices(now); err != nil {
		w.t.Fatal(err)
	}
	w.list(membership.NodeScope, "", now, now)
	found := w.list("pod", "/ns", time.Time{}, now)
	return found, w.settle(map[string]bool{membership.NodeScope: false, "pod": false}, now)
}

// until looks again whenever a watch has told something, until it finds what is
// expected; it returns the time of the last look.
func (w *watched) until(now time.Time, what string, expected func(membership.Interfaces) bool) time.Time {
	w.t.Helper()
	patience := time.After(30 * time.Second)
	for {
		now = now.Add(toldListing)
		if found, _ := w.look(now); expected(found) {
			return now
		}
		select {
		case <-w.woken:
		case <-patience:
			w.t.Fatalf("%s isn't told", what)
		}
	}
}

func rdmaInterfaces(n int) func(membership.Interfaces) bool {
	return func(found membership.Interfaces) bool { return len(found.RDMA) == n && found.Err == nil }
}

// A change is listed at once, what nothing is told of by the clock.
func TestToldChangesAreListedAtOnce(t *testing.T) {
	w := newWatched(t)
	now := time.Now()
	found, next := w.look(now)
	if len(found.RDMA) != 1 || next != watchedListing {
		t.Fatalf("at first: %+v, next in %v", found, next)
	}
	w.node.AddMACVLAN("/ns", "net2", "eth1", netip.MustParsePrefix("192.0.2.3/24"))
	now = w.until(now, "an interface of the pod that comes", rdmaInterfaces(2))
	w.node.DeleteInterface("/ns", "net2")
	if _, next = w.look(now.Add(time.Millisecond)); next > watchedListing {
		t.Errorf("next look in %v", next)
	}
	w.until(now, "an interface of the pod that goes", rdmaInterfaces(1))
}

// What brings one change brings some: a listing isn't repeated for each.
func TestToldChangesAreGathered(t *testing.T) {
	w := newWatched(t)
	now := time.Now()
	w.look(now)
	w.watch.mark("pod")
	if _, next := w.look(now.Add(time.Millisecond)); next != toldListing-time.Millisecond {
		t.Errorf("next look in %v", next)
	}
	if !w.scopes["pod"].at.Equal(now) {
		t.Error("listed again a millisecond later")
	}
	w.look(now.Add(toldListing))
	if w.scopes["pod"].at.Equal(now) {
		t.Error("not listed again")
	}
}

// A device that goes or comes is told once, and pods' interfaces on it are
// looked at too.
func TestDevicesAreWatched(t *testing.T) {
	w := newWatched(t)
	now := time.Now()
	w.look(now)
	w.node.RemoveDevice("rxe0")
	now = w.until(now, "a device that goes", func(found membership.Interfaces) bool {
		return errors.Is(found.Err, errNoRDMANow) && len(w.found) == 0
	})
	w.node.AddDevice("rxe0", "eth1")
	w.until(now, "a device that comes", func(membership.Interfaces) bool { return len(w.found) == 1 })
}

// A sandbox that is about to stop isn't watched any more, whatever planning
// still believes.
func TestWatchEndsBeforeTheNetwork(t *testing.T) {
	w := newWatched(t)
	now := time.Now()
	w.look(now)
	before := w.node.OpenWatches()
	w.watch.closeScope("pod")
	if n := w.node.OpenWatches(); n != before-1 {
		t.Fatalf("%d watches, then %d", before, n)
	}
	w.look(now.Add(2 * watchedListing))
	if n := w.node.OpenWatches(); n != before-1 {
		t.Errorf("it is watched again: %d watches", n)
	}
	w.settle(map[string]bool{membership.NodeScope: false}, now)
	if len(w.watch.ended) != 0 || w.node.OpenWatches() != before-1 {
		t.Errorf("a sandbox that is gone is remembered: %v; %d watches", w.watch.ended, w.node.OpenWatches())
	}
}

// A sandbox that nobody plans for any more isn't watched: polling alone may have
// told that it stopped.
func TestWatchEndsWithThePlan(t *testing.T) {
	w := newWatched(t)
	now := time.Now()
	w.look(now)
	before := w.node.OpenWatches()
	w.settle(map[string]bool{membership.NodeScope: false}, now)
	if n := w.node.OpenWatches(); n != before-1 {
		t.Errorf("%d watches, then %d", before, n)
	}
}

// Where nothing can be watched, listings come by the clock, and are watched
// once that can be.
func TestWatchFailsAndIsTriedAgain(t *testing.T) {
	w := newWatched(t)
	now := time.Now()
	if w.watch.watchLinks("late", "/late", now) {
		t.Fatal("a namespace that isn't there is watched")
	}
	w.node.AddNetNS("/late")
	if w.watch.watchLinks("late", "/late", now.Add(watchRetry-1)) {
		t.Error("tried again too early")
	}
	if !w.watch.watchLinks("late", "/late", now.Add(watchRetry)) {
		t.Error("not tried again")
	}
}

// A pod that changes its network all the time has the node planned no more often
// than it would be listed; the first change is told at once.
func TestStormOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := rdmatest.NewFabric().AddNode("n")
		node.AddNetNS("/ns")
		node.AddPlainInterface("/ns", "net1")
		var woken atomic.Int64
		watch := newInventoryWatch(node.Host(), "", func() { woken.Add(1) }, logr.Discard())
		if !watch.watchLinks("pod", "/ns", time.Now()) {
			t.Fatal("it isn't watched")
		}
		const storm, every = 2 * time.Second, 5 * time.Millisecond
		for i := range storm / every {
			node.SetInterface("/ns", "net1", i%2 == 1)
			synctest.Wait()
			if i == 0 && woken.Load() != 1 {
				t.Error("the first change isn't told at once")
			}
			time.Sleep(every)
		}
		if n := woken.Load(); n < 5 || n > int64(storm/toldListing)+1 {
			t.Errorf("woken %d times in %v", n, storm)
		}
		time.Sleep(2 * toldListing)
		synctest.Wait()
		before := woken.Load()
		node.SetInterface("/ns", "net1", false)
		synctest.Wait()
		if n := woken.Load() - before; n != 1 {
			t.Errorf("woken %d times by the next change", n)
		}
		watch.closeAll()
	})
}
