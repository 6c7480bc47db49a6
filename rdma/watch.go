package rdma

import (
	"errors"
	"sync"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// Watch tells that an inventory may have changed. It doesn't tell what: list
// again, and compare. A change that comes before the last one was received is
// told together with it, so that a slow receiver holds nothing up and a storm of
// changes costs one listing.
//
// Start the watch before the first listing, or what changes in between goes
// unnoticed:
//
//	watch, err := host.WatchInterfaces(nil)
//	...
//	defer watch.Close()
//	for {
//		interfaces, err := host.Interfaces(nil)
//		...
//		if _, open := <-watch.Changed(); !open {
//			return watch.Err()
//		}
//	}
//
// Safe for concurrent use.
type Watch struct {
	op      string
	changed chan struct{}
	sources []sys.Watch

	once     sync.Once
	closing  chan struct{}
	finished chan struct{} // closed once err is set, before changed is
	over     chan struct{} // closed when run has ended
	err      error
	closeErr error
}

// WatchDevices watches what Devices lists: devices that come, go and are
// renamed, their ports' states, GIDs and P_Keys. What the kernel has no
// notification for is looked at from time to time.
//
// The error is an *OpError with the kernel's errno.
func (h *Host) WatchDevices() (*Watch, error) {
	devices, err := h.kernel.WatchDevices()
	if err != nil {
		return nil, &OpError{Op: "watch RDMA devices", Err: err}
	}
	return newWatch("watch RDMA devices", devices), nil
}

// WatchInterfaces watches what Interfaces lists in a network namespace (nil:
// the calling process's): links and addresses that come, go and change, and the
// RDMA devices beneath them.
//
// The watch has sockets of its own in the namespace and keeps it alive until it
// is closed, or has ended by itself, whatever becomes of ns: close it when the
// namespace is to go.
//
// The error is an *OpError with the kernel's errno; EPERM: entering another
// namespace takes CAP_SYS_ADMIN.
func (h *Host) WatchInterfaces(ns *NetNS) (*Watch, error) {
	links, err := h.watchLinks(ns)
	if err != nil {
		return nil, err
	}
	devices, err := h.kernel.WatchDevices()
	if err != nil {
		return nil, errors.Join(&OpError{Op: "watch RDMA devices", Err: err}, links.Close())
	}
	return newWatch(watchingLinks, links, devices), nil
}

// WatchLinks watches the links and addresses of a network namespace (nil: the
// calling process's) alone, not the RDMA devices beneath them: for whoever looks
// at many namespaces of one host, beside one WatchDevices.
//
// It keeps the namespace alive as WatchInterfaces does, and has its errors.
func (h *Host) WatchLinks(ns *NetNS) (*Watch, error) {
	links, err := h.watchLinks(ns)
	if err != nil {
		return nil, err
	}
	return newWatch(watchingLinks, links), nil
}

const watchingLinks = "watch network interfaces"

func (h *Host) watchLinks(ns *NetNS) (links sys.Watch, err error) {
	err = ns.use(func(ns sys.NetNS) (err error) {
		if links, err = h.kernel.WatchLinks(ns); err != nil {
			return &OpError{Op: watchingLinks, Err: err}
		}
		return nil
	})
	return links, err
}

// Changed receives when something may have changed, and is closed when the
// watch has ended.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Err is why the watch has ended by itself, once Changed is closed: an *OpError.
// Then changes are no longer told, and a new watch has to be started. nil while
// it goes on, and after Close.
func (w *Watch) Err() error {
	select {
	case <-w.finished:
		return w.err
	default:
		return nil
	}
}

// Close ends the watch and frees what it holds; Changed is closed when it
// returns. Closing twice is harmless. It has to be called after the watch has
// ended by itself too.
func (w *Watch) Close() error {
	w.once.Do(func() { close(w.closing) })
	<-w.over
	return w.closeErr
}

func newWatch(op string, sources ...sys.Watch) *Watch {
	w := &Watch{
		op:       op,
		sources:  sources,
		changed:  make(chan struct{}, 1),
		closing:  make(chan struct{}),
		finished: make(chan struct{}),
		over:     make(chan struct{}),
	}
	go w.run()
	return w
}

// run passes on what the sources tell until one of them ends.
func (w *Watch) run() {
	ended := w.follow()
	var errs []error
	for _, source := range w.sources {
		if err := source.Err(); ended && err != nil {
			w.err = &OpError{Op: w.op, Err: err}
		}
		if err := source.Close(); err != nil {
			errs = append(errs, &OpError{Op: "close watch", Err: err})
		}
	}
	if ended && w.err == nil {
		w.err = &OpError{Op: w.op, Err: errors.New("the kernel tells of no more changes")}
	}
	w.closeErr = errors.Join(errs...)
	close(w.finished)
	close(w.changed)
	close(w.over)
}

// follow reports whether a source has ended; false: the watch is closed.
func (w *Watch) follow() (ended bool) {
	first := w.sources[0].Changed()
	var second <-chan struct{} // nil: there is none
	if len(w.sources) > 1 {
		second = w.sources[1].Changed()
	}
	for {
		var open bool
		select {
		case <-w.closing:
			return false
		case _, open = <-first:
		case _, open = <-second:
		}
		if !open {
			return true
		}
		select {
		case w.changed <- struct{}{}:
		default: // told, and not yet received
		}
	}
}
