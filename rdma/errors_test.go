package rdma

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
)

func TestOpErrorText(t *testing.T) {
	group, addr := netip.MustParseAddr("239.1.1.7"), netip.MustParseAddr("10.0.0.2")
	for _, tt := range []struct {
		err  *OpError
		want string
	}{
		{&OpError{Op: "leave", Group: group, Interface: "net1", Addr: addr, Err: syscall.ENXIO}, "rdma: leave 239.1.1.7 on net1 (10.0.0.2): no such device or address (ENXIO)"},
		{&OpError{Op: "join", Group: group, Addr: addr, Err: ENOTSUPP}, "rdma: join 239.1.1.7 on 10.0.0.2: not supported by this kind of port (ENOTSUPP 524)"},
		{&OpError{Op: "join", Group: netip.MustParseAddr("ff15:a01b::7"), Verbatim: true, Interface: "ib0", Addr: addr, Err: syscall.EADDRNOTAVAIL}, "rdma: join MGID ff15:a01b::7 on ib0 (10.0.0.2): cannot assign requested address (EADDRNOTAVAIL)"},
		{&OpError{Op: "read link layer", Interface: "net1", Err: syscall.EIO}, "rdma: read link layer on net1: input/output error (EIO)"},
		{&OpError{Op: "open", Path: "/dev/infiniband/rdma_cm", Err: ErrUnavailable}, "rdma: open /dev/infiniband/rdma_cm: no rdma_cm in this kernel: is the module rdma_ucm loaded?"},
		{&OpError{Op: "join", Group: group, Err: &refusal{"joined on this id already", syscall.EADDRINUSE}}, "rdma: join 239.1.1.7: joined on this id already: address already in use (EADDRINUSE)"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
		if !errors.Is(tt.err, tt.err.Err) {
			t.Errorf("%v: errors.Is doesn't find the cause", tt.err)
		}
	}
}

func TestEventErrno(t *testing.T) {
	for status, want := range map[int32]syscall.Errno{
		-102:        syscall.ENETRESET,
		102:         syscall.ENETRESET,
		0:           syscall.EIO,
		-524:        ENOTSUPP,
		-1 << 31:    1 << 31,
		1<<31 - 1:   1<<31 - 1,
		-int32(110): syscall.ETIMEDOUT,
	} {
		if got := eventErrno(status); got != want {
			t.Errorf("status %d: got errno %d, want %d", status, int(got), int(want))
		}
	}
}
