package rdma

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ENOTSUPP is the kernel's internal "operation is not supported", which rdma_cm
// gives away: for an IPv6 group on a RoCE v2 port, among others. It isn't
// ENOTSUP (95).
const ENOTSUPP = syscall.Errno(524)

// ErrUnavailable says that the kernel has no rdma_cm to talk to, because the
// module rdma_ucm isn't loaded.
var ErrUnavailable = errors.New("no rdma_cm in this kernel: is the module rdma_ucm loaded?")

// OpError is the error of an operation.
type OpError struct {
	// Op is what was tried: "join", "leave", "attach", "detach", "bind", ...
	Op string
	// Group that it was about, if any; with Verbatim it is an MGID that was, or
	// was to be, joined by JoinMGID.
	Group    netip.Addr
	Verbatim bool
	// Interface is the network interface of the id, where it is known.
	Interface string
	// Addr is the address that the id is bound to, if any.
	Addr netip.Addr
	// Path is the file that it was about, if any.
	Path string
	// Err is the cause: the kernel's errno, net.ErrClosed, or a QueuePair's error.
	Err error
}

func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString("rdma: ")
	b.WriteString(e.Op)
	if e.Path != "" {
		b.WriteString(" " + e.Path)
	}
	if e.Verbatim {
		b.WriteString(" MGID")
	}
	if e.Group.IsValid() {
		b.WriteString(" " + e.Group.String())
	}
	switch {
	case e.Interface != "" && e.Addr.IsValid():
		b.WriteString(" on " + e.Interface + " (" + e.Addr.String() + ")")
	case e.Interface != "":
		b.WriteString(" on " + e.Interface)
	case e.Addr.IsValid():
		b.WriteString(" on " + e.Addr.String())
	}
	b.WriteString(": ")
	var errno syscall.Errno
	switch known := errors.As(e.Err, &errno); {
	case known && errno == ENOTSUPP:
		b.WriteString("not supported by this kind of port (ENOTSUPP 524)")
	case known && unix.ErrnoName(errno) != "":
		// The name is what documentation is searched for.
		b.WriteString(e.Err.Error() + " (" + unix.ErrnoName(errno) + ")")
	default:
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

func (e *OpError) Unwrap() error { return e.Err }

// refusal is an argument that was refused before the kernel saw it, with the
// errno that stands for it.
type refusal struct {
	reason string
	errno  syscall.Errno
}

func (r *refusal) Error() string { return r.reason + ": " + r.errno.Error() }

func (r *refusal) Unwrap() error { return r.errno }
