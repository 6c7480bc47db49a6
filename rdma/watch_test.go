package rdma

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds what has to happen at once.
const patience = 10 * time.Second

// receive reports whether a watch is still open after it told something.
func receive(t *testing.T, w *Watch) (open bool) {
	t.Helper()
	select {
	case _, open = <-w.Changed():
		return open
	case <-time.After(patience):
		t.Fatal("nothing told")
		return false
	}
}

func openWatch(t *testing.T, s *scripted, start func(*Host) (*Watch, error)) *Watch {
	t.Helper()
	w, err := start(NewHost(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for i, source := range s.watches {
			if !source.isClosed() {
				t.Errorf("source %d isn't closed", i)
			}
		}
	})
	return w
}

func watchInterfaces(h *Host) (*Watch, error) { return h.WatchInterfaces(nil) }

func TestWatchTellsOfEachSource(t *testing.T) {
	s := newScripted()
	w := openWatch(t, s, watchInterfaces)
	if len(s.watches) != 2 {
		t.Fatalf("got %d sources, want links and devices", len(s.watches))
	}
	for _, source := range s.watches {
		source.changed <- struct{}{}
		if !receive(t, w) {
			t.Fatal("the watch ended")
		}
	}
	select {
	case <-w.Changed():
		t.Error("told again")
	default:
	}
}

func TestWatchGathersChanges(t *testing.T) {
	s := newScripted()
	w := openWatch(t, s, (*Host).WatchDevices)
	// The third is taken once the second has been: nobody receives meanwhile.
	for range 3 {
		select {
		case s.watches[0].changed <- struct{}{}:
		case <-time.After(patience):
			t.Fatal("the source isn't followed while nobody receives")
		}
	}
	if !receive(t, w) {
		t.Fatal("the watch ended")
	}
}

func TestWatchThatEndsByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"with an error":  {syscall.ENOBUFS, "rdma: watch network interfaces: no buffer space available (ENOBUFS)"},
		"without reason": {nil, "rdma: watch network interfaces: the kernel tells of no more changes"},
	} {
		for source := range 2 {
			s := newScripted()
			w := openWatch(t, s, watchInterfaces)
			if err := w.Err(); err != nil {
				t.Errorf("%s: error %v of a watch that goes on", name, err)
			}
			s.watches[source].end(tt.err)
			if receive(t, w) {
				t.Fatalf("%s: a change, want the end", name)
			}
			if err := w.Err(); err == nil || err.Error() != tt.want || tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("%s: got error %v, want %s", name, err, tt.want)
			}
		}
	}
}

func TestClosedWatch(t *testing.T) {
	s := newScripted()
	w, err := NewHost(s).WatchInterfaces(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.watches[1].closeErr = syscall.EIO
	for range 2 {
		if err := w.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("close: got error %v, want EIO", err)
		}
	}
	select {
	case _, open := <-w.Changed():
		if open {
			t.Error("a change after closing")
		}
	default:
		t.Error("closed, and Changed isn't")
	}
	if err := w.Err(); err != nil {
		t.Errorf("got error %v after closing, want none", err)
	}
}

func TestWatchThatCannotStart(t *testing.T) {
	for kind, what := range []string{"network interfaces", "RDMA devices"} {
		s := newScripted()
		s.watchErr[kind] = syscall.EPERM
		w, err := NewHost(s).WatchInterfaces(nil)
		if w != nil || !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), what) {
			t.Errorf("got watch %v, error %v, want EPERM of %s", w, err, what)
		}
		for _, source := range s.watches {
			if !source.isClosed() {
				t.Errorf("%s: a source is left open", what)
			}
		}
	}
	s := newScripted()
	s.watchErr[1] = syscall.EPERM
	if w, err := NewHost(s).WatchDevices(); w != nil || !errors.Is(err, syscall.EPERM) {
		t.Errorf("got watch %v, error %v, want EPERM", w, err)
	}
	closed := &NetNS{path: "/run/netns/x"}
	if w, err := NewHost(s).WatchInterfaces(closed); w != nil || err == nil || !strings.Contains(err.Error(), "/run/netns/x") {
		t.Errorf("in a closed namespace: got watch %v, error %v", w, err)
	}
}
