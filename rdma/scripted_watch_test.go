package rdma

import (
	"sync"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// scriptedWatch is a watch of a scripted kernel.
type scriptedWatch struct {
	changed  chan struct{}
	closeErr error

	once   sync.Once
	mu     sync.Mutex
	err    error
	closed bool
}

func (w *scriptedWatch) Changed() <-chan struct{} { return w.changed }

func (w *scriptedWatch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *scriptedWatch) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.once.Do(func() { close(w.changed) })
	return w.closeErr
}

// end ends the watch by itself.
func (w *scriptedWatch) end(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.once.Do(func() { close(w.changed) })
}

func (w *scriptedWatch) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

func (s *scripted) WatchLinks(sys.NetNS) (sys.Watch, error) { return s.watch(0) }

func (s *scripted) WatchDevices() (sys.Watch, error) { return s.watch(1) }

func (s *scripted) watch(kind int) (sys.Watch, error) {
	if err := s.watchErr[kind]; err != nil {
		return nil, err
	}
	w := &scriptedWatch{changed: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, w)
	return w, nil
}
