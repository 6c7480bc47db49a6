package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// netNS is an open network namespace.
type netNS struct{ file *os.File }

func openNetNS(path string) (*netNS, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// NS_GET_NSTYPE fails with ENOTTY on anything that isn't a namespace.
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err == nil && kind != unix.CLONE_NEWNET {
		err = unix.EINVAL
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not a network namespace: %w", path, err), file.Close())
	}
	return &netNS{file: file}, nil
}

func (ns *netNS) Close() error { return ns.file.Close() }

// control runs f with the namespace's descriptor, which stays open meanwhile.
func (ns *netNS) control(f func(fd int) error) error {
	raw, err := ns.file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if raw.Control(func(fd uintptr) { ferr = f(int(fd)) }) != nil {
		return os.ErrClosed
	}
	return ferr
}

// ours narrows a NetNS to this kernel's; nil for the calling process's own.
func ours(ns NetNS) (*netNS, error) {
	if ns == nil {
		return nil, nil
	}
	n, ok := ns.(*netNS)
	if !ok {
		return nil, fmt.Errorf("a network namespace of another kernel (%T): %w", ns, syscall.EINVAL)
	}
	return n, nil
}

// inNetNS runs f on a thread that is in the namespace. A nil ns: on this one.
func inNetNS(ns NetNS, f func() error) error {
	n, err := ours(ns)
	if err != nil {
		return err
	}
	if n == nil {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		// Left locked, the thread ends with this goroutine instead of going on
		// to serve others from the wrong namespace.
		runtime.LockOSThread()
		err := n.control(func(fd int) error { return enter(fd, f) })
		if !errors.Is(err, errStranded) {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// errStranded: the thread couldn't go back to its own namespace.
var errStranded = errors.New("cannot return to the thread's network namespace")

func enter(fd int, f func() error) error {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer unix.Close(home)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	ferr := f()
	if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
		return errors.Join(ferr, errStranded, err)
	}
	return ferr
}
