package sys

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the wait for what has to happen.
const patience = 10 * time.Second

// userGroup is a group of NETLINK_USERSOCK, whose messages processes send to
// each other, without privilege and in the kernel's way.
const userGroup = 7

// multicaster sends to userGroup.
type multicaster struct {
	fd   int
	port uint32
}

func newMulticaster(t *testing.T) multicaster {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_USERSOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return multicaster{fd, self.(*unix.SockaddrNetlink).Pid}
}

func (m multicaster) send(t *testing.T, message string) {
	t.Helper()
	// What was multicast goes to port 0, the kernel, too: nobody is there.
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (userGroup - 1)}
	if err := unix.Sendto(m.fd, []byte(message), 0, to); !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOBUFS) {
		t.Fatal(err)
	}
}

// listen opens a socket that listens to one who multicasts.
func listen(t *testing.T, m multicaster) *netlinkSocket {
	t.Helper()
	s, err := openNetlink(nil, unix.NETLINK_USERSOCK, userGroup)
	if err != nil {
		t.Fatal(err)
	}
	s.sender = m.port
	return s
}

// wantChange waits for a change to be told.
func wantChange(t *testing.T, w *watch) {
	t.Helper()
	select {
	case _, more := <-w.Changed():
		if !more {
			t.Fatalf("the watch ended: %v", w.Err())
		}
	case <-time.After(patience):
		t.Fatal("no change was told")
	}
}

func closeWatch(t *testing.T, w *watch) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Errorf("close the watch: %v", err)
	}
}

func TestWatchTellsOnceUntilReceivedFrom(t *testing.T) {
	from := newMulticaster(t)
	s := listen(t, from)
	w := newWatch(s)
	seen := make(chan string, 4)
	w.start(w.receive(s, func(message []byte) {
		w.signal()
		seen <- string(message)
	}, w.signal))
	for _, message := range []string{"one", "two", "three"} {
		from.send(t, message)
		if got := <-seen; got != message {
			t.Errorf("received %q, want %q", got, message)
		}
	}
	wantChange(t, w)
	closeWatch(t, w)
	if _, more := <-w.Changed(); more {
		t.Error("three messages were told twice, want once")
	}
	if err := w.Err(); err != nil {
		t.Errorf("error %v after closing, want none", err)
	}
	closeWatch(t, w) // a second time
}

func TestWatchListensToItsSenderAlone(t *testing.T) {
	from, other := newMulticaster(t), newMulticaster(t)
	s := listen(t, from)
	w := newWatch(s)
	seen := make(chan string, 4)
	w.start(w.receive(s, func(message []byte) { seen <- string(message) }, w.signal))
	other.send(t, "not the kernel's")
	from.send(t, "the kernel's")
	if got := <-seen; got != "the kernel's" {
		t.Errorf("received %q", got)
	}
	closeWatch(t, w)
}

// What didn't fit in the socket is a change, and not the watch's end.
func TestWatchOverflow(t *testing.T) {
	from := newMulticaster(t)
	s := listen(t, from)
	if err := s.raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the least there is
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		from.send(t, string(make([]byte, 1024)))
	}
	w := newWatch(s)
	var lost atomic.Int32
	after := make(chan struct{}, 1)
	w.start(w.receive(s, func(message []byte) {
		if string(message) == "after" {
			offer(after)
		}
	}, func() { lost.Add(1); w.signal() }))
	wantChange(t, w)
	if got := lost.Load(); got != 1 {
		t.Errorf("%d overflows, want 1", got)
	}
	// Until the socket was emptied, more of it is dropped.
	deadline := time.After(patience)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for received := false; !received; {
		from.send(t, "after")
		select {
		case <-after:
			received = true
		case <-again.C:
		case <-deadline:
			t.Fatal("nothing was received after the overflow")
		}
	}
	closeWatch(t, w)
}

func TestCloseEndsAnIdleWatch(t *testing.T) {
	w, err := watchLinks(nil)
	if err != nil {
		t.Fatal(err)
	}
	closeWatch(t, w)
	if _, more := <-w.Changed(); more {
		t.Error("a change was told, want the channel closed")
	}
	var b [1]byte
	if _, err := w.sockets[0].file.Read(b[:]); !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading from the socket: %v, want it closed", err)
	}
}

func TestWatchEndsWithItsError(t *testing.T) {
	s := listen(t, newMulticaster(t))
	w := newWatch(s)
	w.start(w.receive(s, func([]byte) {}, w.signal), func() error { return syscall.EIO })
	if _, more := <-w.Changed(); more {
		t.Error("a change was told, want the end")
	}
	if err := w.Err(); !errors.Is(err, syscall.EIO) {
		t.Errorf("got error %v, want EIO", err)
	}
	closeWatch(t, w)
	if err := w.Err(); !errors.Is(err, syscall.EIO) {
		t.Errorf("after closing: got error %v, want why it ended", err)
	}
}

func TestRescanTellsOfDifferencesAlone(t *testing.T) {
	device := func(state string) inventory {
		return inventory{devices: []Device{{Name: "mlx5_0", Ports: []Port{{Number: 1, State: state}}}}}
	}
	w := newWatch()
	looks := make(chan inventory, 1)
	looks <- device("1: DOWN")
	w.start(w.rescan(time.Nanosecond, nil, func(inventory) inventory {
		select {
		case i := <-looks:
			return i
		case <-w.stop:
			return inventory{}
		}
	}))
	for _, tt := range []struct {
		name string
		inventory
		want bool
	}{
		{"nothing new", device("1: DOWN"), false},
		{"another state", device("4: ACTIVE"), true},
		{"nothing new again", device("4: ACTIVE"), false},
		{"an error", inventory{err: "EIO"}, true},
		{"the same error", inventory{err: "EIO"}, false},
		{"devices again", device("4: ACTIVE"), true},
	} {
		// Three times: that the third fits in the channel means that the second
		// was taken, thus the first compared; and the others are no news.
		for range 3 {
			looks <- tt.inventory
		}
		select {
		case <-w.changed:
			if !tt.want {
				t.Errorf("%s: told", tt.name)
			}
		default:
			if tt.want {
				t.Errorf("%s: not told", tt.name)
			}
		}
	}
	closeWatch(t, w)
}

// A kick has it look soon, however many come.
func TestRescanAfterAKick(t *testing.T) {
	kick := make(chan struct{}, 1)
	w := newWatch()
	var n atomic.Int32
	w.start(w.rescan(time.Hour, kick, func(inventory) inventory { return inventory{pkeys: make([][]uint16, n.Add(1))} }))
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case kick <- struct{}{}:
			case <-stop:
				return
			}
		}
	}()
	wantChange(t, w)
	close(stop)
	<-ended
	closeWatch(t, w)
}

func TestWatchDevicesOpensAndCloses(t *testing.T) {
	w, err := New().WatchDevices()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Err(); err != nil {
		t.Errorf("error %v of a watch that goes on", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestWatchOfAClosedNamespace(t *testing.T) {
	ns, err := New().OpenNetNS("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err := New().WatchLinks(ns); !errors.Is(err, os.ErrClosed) || w != nil {
		t.Errorf("got %v, error %v, want os.ErrClosed", w, err)
	}
	if w, err := New().WatchLinks(foreign{}); !errors.Is(err, syscall.EINVAL) || w != nil {
		t.Errorf("another kernel's: got %v, error %v, want EINVAL", w, err)
	}
}
