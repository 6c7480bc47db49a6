package rdmatest

import (
	"net/netip"
	"slices"
	"syscall"
)

// Op is what a Fault hits.
type Op string

// The calls of the kernel, and its answer to a join.
const (
	OpOpen      Op = "open"
	OpCreateID  Op = "create id"
	OpBind      Op = "bind"
	OpJoin      Op = "join"
	OpJoinEvent Op = "join event"
	OpLeave     Op = "leave"
	OpDestroy   Op = "destroy id"
)

// Fault makes a call of the kernel fail, or wait.
type Fault struct {
	// Op is what it hits.
	Op Op
	// Group and Interface narrow it down; their zero values match any. Group, an
	// address or a verbatim MGID, is known to OpJoin, OpJoinEvent and OpLeave, Interface to these and OpDestroy.
	Group     netip.Addr
	Interface string
	// Err is what the call answers, nothing having been done. OpJoinEvent: what
	// the event tells, the join having been taken. 0: the call goes on.
	Err syscall.Errno
	// Silent with OpJoinEvent: the join is taken and no event follows.
	Silent bool
	// Until, where set, is waited for before the call goes on or fails. Not with
	// OpJoinEvent.
	Until <-chan struct{}
	// Times is how often it happens; 0: until it is removed.
	Times int

	left int
}

// Inject adds a fault. Of several that match, the first added happens. The
// returned function removes it; calling it again does nothing.
func (n *Node) Inject(f Fault) (remove func()) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	f.left = f.Times
	fault := &f
	n.faults = append(n.faults, fault)
	return func() {
		n.fabric.mu.Lock()
		defer n.fabric.mu.Unlock()
		n.removeFault(fault)
	}
}

// FailMemberships tells every membership of a group on the node that it is
// lost: MULTICAST_ERROR with an errno. The kernel's memberships stay until they
// are left, and so do the network's: Subnet.FailOver is what takes those.
func (n *Node) FailMemberships(group netip.Addr, errno syscall.Errno) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	for _, m := range n.memberships {
		if m.group.addr == group {
			m.fail(errno)
		}
	}
}

func (n *Node) removeFault(f *Fault) {
	n.faults = slices.DeleteFunc(n.faults, func(x *Fault) bool { return x == f })
}

// take is the fault that happens to a call, if any; fabric.mu is held.
func (n *Node) take(op Op, l *link, group netip.Addr) (Fault, bool) {
	for _, f := range n.faults {
		switch {
		case f.Op != op:
			continue
		case f.Group.IsValid() && f.Group != group:
			continue
		case f.Interface != "" && (l == nil || l.name != f.Interface):
			continue
		}
		if f.Times > 0 {
			if f.left--; f.left == 0 {
				n.removeFault(f)
			}
		}
		return *f, true
	}
	return Fault{}, false
}

// fault lets a fault happen to a call: it waits, without fabric.mu, and gives
// the errno, if any. fabric.mu is held before and after; what was looked up
// before has to be looked up again.
func (n *Node) fault(op Op, l *link, group netip.Addr) error {
	f, ok := n.take(op, l, group)
	if !ok {
		return nil
	}
	if f.Until != nil {
		n.fabric.mu.Unlock()
		<-f.Until
		n.fabric.mu.Lock()
	}
	if f.Err != 0 {
		return f.Err
	}
	return nil
}
