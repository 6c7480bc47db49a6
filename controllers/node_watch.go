package controllers

import (
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// watchRetry is how long after a watch failed, or ended by itself, another one
// is tried: meanwhile listings come by the clock alone.
const watchRetry = 30 * time.Second

// inventoryWatch hears of changes to RDMA devices and, in each namespace that
// is looked into, to links and addresses, so that they are listed at once and
// not only by the clock.
//
// A watch keeps its namespace alive. So it has to be closed before the pod's
// network goes, which the runtime's hook does through closeScope, and when the
// sandbox isn't planned for any more.
type inventoryWatch struct {
	host      *rdma.Host
	nodeNetNS string // as scopeInterfaces
	wake      func() // something has changed
	log       logr.Logger

	mu      sync.Mutex
	links   map[string]*rdma.Watch // by scope
	devices *rdma.Watch
	failed  map[string]time.Time // by scope, deviceScope for devices
	ended   map[string]bool      // scopes that are not to be watched any more
	changed map[string]bool      // scopes, since the last take
	closed  bool
	over    chan struct{} // closed with closed
	work    sync.WaitGroup
}

// deviceScope stands for the devices where scopes are named; no sandbox has it.
const deviceScope = "devices"

func newInventoryWatch(host *rdma.Host, nodeNetNS string, wake func(), log logr.Logger) *inventoryWatch {
	return &inventoryWatch{
		host: host, nodeNetNS: nodeNetNS, wake: wake, log: log,
		over:  make(chan struct{}),
		links: map[string]*rdma.Watch{}, failed: map[string]time.Time{}, ended: map[string]bool{}, changed: map[string]bool{},
	}
}

// watchDevices sees to it that devices are watched.
func (i *inventoryWatch) watchDevices(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.devices != nil || !i.mayTry(deviceScope, now) {
		return
	}
	w, err := i.host.WatchDevices()
	if err != nil {
		i.fail(deviceScope, now, err)
		return
	}
	i.devices = w
	i.follow(deviceScope, w)
}

func (i *inventoryWatch) watchesDevices() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.devices != nil
}

// watchLinks sees to it that the links of a scope are watched, and reports
// whether they are.
func (i *inventoryWatch) watchLinks(scope, netns string, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.links[scope] != nil {
		return true
	}
	if !i.mayTry(scope, now) {
		return false
	}
	w, err := i.openLinks(scope, netns)
	if err != nil {
		i.fail(scope, now, err)
		return false
	}
	i.links[scope] = w
	i.follow(scope, w)
	return true
}

func (i *inventoryWatch) openLinks(scope, netns string) (w *rdma.Watch, err error) {
	if scope == membership.NodeScope {
		netns = i.nodeNetNS
	}
	err = inNetNS(i.host, netns, func(ns *rdma.NetNS) error {
		w, err = i.host.WatchLinks(ns)
		return err
	})
	if err != nil && w != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, err
}

// mayTry and fail are called with the lock held.
func (i *inventoryWatch) mayTry(scope string, now time.Time) bool {
	at, failed := i.failed[scope]
	return !i.closed && !i.ended[scope] && (!failed || !now.Before(at.Add(watchRetry)))
}

func (i *inventoryWatch) fail(scope string, now time.Time, err error) {
	if _, again := i.failed[scope]; !again {
		i.log.Info("changes can't be watched, and are looked for by the clock alone", "scope", scope, "error", err.Error())
	}
	i.failed[scope] = now
}

// follow passes on what a watch tells until it ends; the lock is held.
func (i *inventoryWatch) follow(scope string, w *rdma.Watch) {
	delete(i.failed, scope)
	i.work.Go(func() {
		for range w.Changed() {
			i.mark(scope)
			select { // a pod may change its network all the time
			case <-i.over:
			case <-time.After(toldListing):
			}
		}
		err := w.Err()
		if err == nil {
			return // closed by us
		}
		i.mu.Lock()
		if scope == deviceScope {
			i.devices = nil
		} else if i.links[scope] == w {
			delete(i.links, scope)
		}
		i.fail(scope, time.Now(), err)
		i.mu.Unlock()
		i.close(w)
		i.mark(scope) // what has changed since isn't known
	})
}

func (i *inventoryWatch) mark(scope string) {
	i.mu.Lock()
	i.changed[scope] = true
	i.mu.Unlock()
	i.wake()
}

func (i *inventoryWatch) close(w *rdma.Watch) {
	if err := w.Close(); err != nil {
		i.log.Error(err, "closing a watch")
	}
}

// take returns the scopes that have changed since the last time.
func (i *inventoryWatch) take() map[string]bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := i.changed
	i.changed = map[string]bool{}
	return changed
}

// closeScope ends the watch of a sandbox that is about to stop: its network is
// to go. None is opened for it again.
func (i *inventoryWatch) closeScope(scope string) {
	i.mu.Lock()
	w := i.links[scope]
	delete(i.links, scope)
	i.ended[scope] = true
	i.mu.Unlock()
	if w != nil {
		i.close(w)
	}
}

// keep closes the watches of all scopes but those named.
func (i *inventoryWatch) keep(scopes map[string]bool) {
	i.mu.Lock()
	var over []*rdma.Watch
	for scope, w := range i.links {
		if _, ok := scopes[scope]; !ok {
			over = append(over, w)
			delete(i.links, scope)
		}
	}
	forget := func(scope string) bool {
		_, ok := scopes[scope]
		return !ok && scope != deviceScope
	}
	for scope := range i.failed {
		if forget(scope) {
			delete(i.failed, scope)
		}
	}
	for scope := range i.ended {
		if forget(scope) {
			delete(i.ended, scope)
		}
	}
	i.mu.Unlock()
	for _, w := range over {
		i.close(w)
	}
}

// closeAll ends all watches, for good.
func (i *inventoryWatch) closeAll() {
	i.mu.Lock()
	if !i.closed {
		i.closed = true
		close(i.over)
	}
	devices := i.devices
	i.devices = nil
	i.mu.Unlock()
	i.keep(nil)
	if devices != nil {
		i.close(devices)
	}
	i.work.Wait()
}
