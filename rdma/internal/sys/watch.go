package sys

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watch is a Watch whose goroutines receive from netlink sockets, or look by
// themselves. The netlink library has subscriptions too, but ends them only
// when the next message comes: until then a socket in a pod's namespace would
// keep the namespace alive.
type watch struct {
	changed chan struct{}
	stop    chan struct{} // closed when it is to end
	ended   chan struct{} // closed when nothing of it runs any more
	sockets []*netlinkSocket
	running sync.WaitGroup

	mu      sync.Mutex
	ending  bool
	err     error
	closing error
}

func newWatch(sockets ...*netlinkSocket) *watch {
	return &watch{
		changed: make(chan struct{}, 1),
		stop:    make(chan struct{}),
		ended:   make(chan struct{}),
		sockets: sockets,
	}
}

// start runs the watch's goroutines, of which the first that returns ends it.
func (w *watch) start(loops ...func() error) *watch {
	for _, loop := range loops {
		w.running.Go(func() { w.end(loop()) })
	}
	go func() {
		w.running.Wait()
		close(w.changed)
		close(w.ended)
	}()
	return w
}

func (w *watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending {
		return
	}
	w.ending, w.err = true, err
	close(w.stop)
	for _, s := range w.sockets {
		w.closing = errors.Join(w.closing, s.file.Close())
	}
}

func (w *watch) Changed() <-chan struct{} { return w.changed }

func (w *watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close returns when the descriptors are closed and the goroutines have ended.
func (w *watch) Close() error {
	w.end(nil)
	<-w.ended
	return w.closing
}

func (w *watch) signal() { offer(w.changed) }

// offer puts a token into a channel of capacity one that may have it already.
func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// receive is a loop that shows what a socket receives to look. What the kernel
// had to drop because the socket was full may have been anything: lost.
func (w *watch) receive(s *netlinkSocket, look func(message []byte), lost func()) func() error {
	return func() error {
		// The kernel's largest uevent has some 4 KiB; of a netlink message no
		// more than the first bytes are looked at.
		buffer := make([]byte, 8<<10)
		for {
			switch n, err := s.receive(buffer); {
			case err == nil:
				look(buffer[:n])
			case errors.Is(err, unix.ENOBUFS):
				lost()
			case errors.Is(err, os.ErrClosed):
				return nil
			default:
				return os.NewSyscallError("recvfrom", err)
			}
		}
	}
}

// netlinkSocket receives what a netlink protocol multicasts to its groups.
type netlinkSocket struct {
	file *os.File
	raw  syscall.RawConn
	// sender is the port of whom it listens to; 0, the kernel. Others may send
	// to a socket too.
	sender uint32
}

// openNetlink opens a socket in a namespace, which it keeps alive. groups are
// numbers from 1 to 32.
func openNetlink(ns NetNS, protocol int, groups ...int) (*netlinkSocket, error) {
	fd := -1
	err := inNetNS(ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "netlink")
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		address.Groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, address); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), file.Close())
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &netlinkSocket{file: file, raw: raw}, nil
}

// receive waits for the sender's next message, of which it gives as much as
// fits in b; os.ErrClosed once the socket is closed.
func (s *netlinkSocket) receive(b []byte) (int, error) {
	for {
		var n int
		var from unix.Sockaddr
		var err error
		rerr := s.raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), b, 0)
			return err != unix.EAGAIN // false: wait until readable
		})
		if rerr != nil {
			return 0, os.ErrClosed
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if a, ok := from.(*unix.SockaddrNetlink); ok && a.Pid == s.sender {
			return n, nil
		}
	}
}
