package rdma

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// PortSpace is an rdma_cm port space. It decides a group's MGID, Q_Key, MTU and
// rate on InfiniBand. On RoCE there is PortSpaceUDP alone.
type PortSpace uint16

// The port spaces that have multicast.
const (
	PortSpaceIPoIB PortSpace = sys.PortSpaceIPoIB
	PortSpaceUDP   PortSpace = sys.PortSpaceUDP
)

// groupKey names a group on an id as librdmacm does, by the whole sockaddr: one
// MGID can be joined both as an IPv6 address and verbatim.
type groupKey struct {
	addr netip.Addr
	mgid bool // verbatim, AF_IB
}

// ID is an rdma_cm id of queue pair type UD: bound to an address, it holds
// memberships on the port behind that address.
//
// It also holds its network namespace, and the interfaces in it, alive until
// it is closed.
type ID struct {
	channel *Channel
	cookie  uint64
	id      uint32
	ns      *NetNS // until bound

	// mu serialises the kernel's calls on this id and guards what follows.
	mu     sync.Mutex
	closed bool
	addr   netip.Addr
	link   string
	joined map[groupKey]*Membership

	source source // set by Bind, before there is a membership to ask it
}

// NewID creates an id in a network namespace (nil: the calling process's). The
// namespace has to stay open until Bind has returned.
//
// EPERM: entering another namespace takes CAP_SYS_ADMIN. EINVAL: no such port
// space. EACCES: the process has changed its credentials since OpenChannel.
func (c *Channel) NewID(ns *NetNS, ps PortSpace) (*ID, error) {
	id := &ID{channel: c, ns: ns, joined: map[groupKey]*Membership{}}
	if !c.registerID(id) {
		return nil, &OpError{Op: "create id", Err: net.ErrClosed}
	}
	// The cookie is set; only now may the kernel learn of it.
	err := ns.use(func(ns sys.NetNS) error {
		var err error
		id.id, err = c.cm.CreateID(ns, id.cookie, uint16(ps))
		return err
	})
	if err != nil {
		c.forget(id.cookie)
		if errors.Is(err, os.ErrClosed) {
			err = net.ErrClosed
		}
		return nil, &OpError{Op: "create id", Err: err}
	}
	return id, nil
}

// Bind binds the id to an address of an RDMA interface, and thereby to its port.
//
// EADDRNOTAVAIL: no interface of the namespace has the address. ENODEV: the
// interface that has it is no RDMA one, or has no GID for it yet; close the id
// then, since the kernel keeps it to that interface. EINVAL: the id is bound
// already, or the address is unspecified, multicast or has a zone, or the port
// space is IPoIB and the interface isn't (cma_acquire_dev_by_src_ip).
func (id *ID) Bind(addr netip.Addr) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return &OpError{Op: "bind", Addr: addr, Err: net.ErrClosed}
	}
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() || addr.Is4In6() || addr.Zone() != "" {
		return &OpError{Op: "bind", Addr: addr, Err: &refusal{"not the address of an interface", syscall.EINVAL}}
	}
	err := id.ns.use(func(ns sys.NetNS) error {
		if err := id.channel.cm.Bind(id.id, addr); err != nil {
			return err
		}
		bound, err := id.channel.cm.QueryAddr(id.id)
		if err != nil {
			return err
		}
		var device string
		device, id.link = id.channel.host.names(ns, bound.DeviceIndex, addr)
		id.source.bind(id.channel.host.kernel, device, addr, bound)
		return nil
	})
	if err != nil {
		return &OpError{Op: "bind", Addr: addr, Err: err}
	}
	id.ns = nil
	id.addr = addr
	return nil
}

// Close destroys the id, which leaves all its groups, and detaches their queue
// pairs. Nothing of the id or its memberships is delivered afterwards. Closing
// twice is harmless. The error is that of detaching or of the kernel; the id
// is gone all the same.
func (id *ID) Close() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return nil
	}
	err := id.release()
	if _, derr := id.channel.cm.Destroy(id.id); derr != nil {
		err = errors.Join(err, id.error("destroy id", groupKey{}, derr))
	}
	return err
}

// abandon is Close without the kernel, whose file is about to be closed.
func (id *ID) abandon() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return nil
	}
	return id.release()
}

// release ends the id on this side of the kernel; id.mu is held.
func (id *ID) release() error {
	id.closed = true
	cookies := []uint64{id.cookie}
	var errs []error
	for group, m := range id.joined {
		cookies = append(cookies, m.cookie)
		errs = append(errs, m.leave())
		delete(id.joined, group)
	}
	id.channel.forget(cookies...)
	return errors.Join(errs...)
}

// error makes the OpError of a call on this id.
func (id *ID) error(op string, group groupKey, err error) error {
	return &OpError{Op: op, Group: group.addr, Verbatim: group.mgid, Interface: id.link, Addr: id.addr, Err: err}
}

// JoinMode is what a membership is for.
type JoinMode uint16

// The join modes (RDMA_MC_JOIN_FLAG_*).
const (
	// FullMember sends and receives.
	FullMember JoinMode = sys.JoinFullMember
	// SendOnlyFullMember only sends: no queue pair is attached, and on RoCE
	// nothing is joined on the wire.
	SendOnlyFullMember JoinMode = sys.JoinSendOnlyFullMember
)

func (m JoinMode) String() string {
	switch m {
	case FullMember:
		return "FullMember"
	case SendOnlyFullMember:
		return "SendOnlyFullMember"
	}
	return fmt.Sprintf("JoinMode(%d)", uint16(m))
}

// DefaultJoinTimeout is a join's deadline where JoinOptions give none: longer
// than the kernel's own wait for a subnet manager's answer, about 3 s.
const DefaultJoinTimeout = 10 * time.Second

// JoinOptions are a join's options. The zero value: a full member without a
// queue pair, with the default timeout.
type JoinOptions struct {
	Mode JoinMode
	// Timeout is the time from the call to the join's event; 0:
	// DefaultJoinTimeout. When it has passed, the join is cancelled and
	// MulticastError with ETIMEDOUT is delivered, once: the kernel may keep
	// silent for ever (a Q_Key mismatch in cma_ib_mc_handler).
	Timeout time.Duration
	// QP is attached when the join has completed, and detached by Leave. nil, or
	// with SendOnlyFullMember: none is.
	QP QueuePair
}

// Join asks for membership in a group. It returns once the kernel has taken
// the request; the outcome is an event of the channel, MulticastJoined or
// MulticastError, which may be delivered before Join returns. In either case
// the group stays joined on this id until Leave or Close.
//
// EINVAL: not a multicast address in canonical form (IPv4, or IPv6 without
// zone), or the id isn't bound. EADDRINUSE: the group is joined, or being
// joined, on this id already; the kernel would take it and later leave the wrong
// one. EADDRNOTAVAIL: IPoIB hasn't joined its broadcast group yet. ENOTSUPP: an
// IPv6 group on RoCE v2. ENOSYS: iWARP. ENODEV: the interface is gone.
// ENXIO (EIO on older kernels): the device is gone.
func (id *ID) Join(group netip.Addr, opts JoinOptions) (*Membership, error) {
	return id.join(groupKey{group, false}, opts)
}

// JoinMGID is Join for a verbatim MGID (AF_IB), on InfiniBand only: what it
// names isn't derived from an IP address, the port space, or the interface's
// P_Key and scope. The id is bound by an address of an IPoIB interface as for
// Join, and its P_Key is that interface's. A group that was joined so is left
// by LeaveMGID.
//
// The errnos are Join's; ENOTSUPP: RoCE has no MGIDs but those of IPv4
// addresses. EINVAL: not a multicast GID.
func (id *ID) JoinMGID(mgid netip.Addr, opts JoinOptions) (*Membership, error) {
	return id.join(groupKey{mgid, true}, opts)
}

// isGroup tells whether an address is one that can be joined.
func isGroup(group netip.Addr) bool {
	return group.IsMulticast() && !group.Is4In6() && group.Zone() == ""
}

const notAGroup = "not a multicast address in canonical form"

func (id *ID) join(key groupKey, opts JoinOptions) (*Membership, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return nil, id.error("join", key, net.ErrClosed)
	}
	switch {
	case !isGroup(key.addr) || key.mgid && !key.addr.Is6():
		return nil, id.error("join", key, &refusal{notAGroup, syscall.EINVAL})
	case opts.Mode != FullMember && opts.Mode != SendOnlyFullMember:
		return nil, id.error("join", key, &refusal{"unknown " + opts.Mode.String(), syscall.EINVAL})
	case id.joined[key] != nil:
		return nil, id.error("join", key, &refusal{"joined on this id already", syscall.EADDRINUSE})
	}
	m := &Membership{id: id, group: key, mode: opts.Mode, qp: opts.QP}
	if err := m.join(opts.Timeout); err != nil {
		return nil, err
	}
	id.joined[key] = m
	return m, nil
}

// Leave leaves a group: rdma_leave_multicast(3). It detaches the queue pair
// that was given to Join, with the MGID and MLID of the join's event, unless
// the member was send-only; an error of detaching is returned, and the group is
// left all the same.
//
// Leaving before the join has completed cancels it. Once Leave has returned,
// Next delivers nothing of the membership any more, not even what was queued;
// Leave may be called from any goroutine, between two calls of Next too. Messages of
// the group that the queue pair has received already may still be waiting in
// its completion queue.
//
// On InfiniBand the subnet manager is told by the kernel later: that Leave has
// returned doesn't mean that it has taken the port out of the group.
//
// EADDRNOTAVAIL: the group isn't joined on this id. ENXIO (EIO on older
// kernels): the device is gone, and the membership with it. Where any other
// errno comes from the kernel the group may still be joined there, and Leave
// can be called again.
func (id *ID) Leave(group netip.Addr) error { return id.leave(groupKey{group, false}) }

// LeaveMGID is Leave for what JoinMGID joined.
func (id *ID) LeaveMGID(mgid netip.Addr) error { return id.leave(groupKey{mgid, true}) }

func (id *ID) leave(key groupKey) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return id.error("leave", key, net.ErrClosed)
	}
	m := id.joined[key]
	if m == nil {
		return id.error("leave", key, &refusal{"not joined on this id", syscall.EADDRNOTAVAIL})
	}
	err := m.leave()
	id.channel.forget(m.cookie)
	kerr := m.leaveKernel()
	if m.kernelLeft {
		delete(id.joined, key)
	}
	return errors.Join(err, kerr)
}
