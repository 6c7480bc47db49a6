package rdmatest

import (
	"sync"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// watch tells of changes, as a netlink socket that is subscribed to them.
type watch struct {
	n       *Node
	ns      *namespace // nil: of devices
	changed chan struct{}
	once    sync.Once
}

func (w *watch) Changed() <-chan struct{} { return w.changed }

// Err is nil: these watches end by Close alone.
func (w *watch) Err() error { return nil }

func (w *watch) Close() error {
	w.once.Do(func() {
		w.n.fabric.mu.Lock()
		defer w.n.fabric.mu.Unlock()
		delete(w.n.watches, w)
		close(w.changed)
	})
	return nil
}

func (k kernel) WatchLinks(ns sys.NetNS) (sys.Watch, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	space, err := k.n.namespace(ns)
	if err != nil {
		return nil, err
	}
	return k.n.watch(space), nil
}

func (k kernel) WatchDevices() (sys.Watch, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	return k.n.watch(nil), nil
}

// What follows is called with fabric.mu held.

func (n *Node) watch(ns *namespace) *watch {
	w := &watch{n: n, ns: ns, changed: make(chan struct{}, 1)}
	n.watches[w] = true
	return w
}

// linksChanged tells those who watch a namespace's links and addresses.
func (n *Node) linksChanged(ns *namespace) { n.tell(ns) }

// devicesChanged tells those who watch devices, ports and GIDs.
func (n *Node) devicesChanged() { n.tell(nil) }

func (n *Node) tell(ns *namespace) {
	for w := range n.watches {
		if w.ns != ns {
			continue
		}
		select {
		case w.changed <- struct{}{}:
		default: // told already, and not yet looked at
		}
	}
}
