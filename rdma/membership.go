package rdma

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// QueuePair is a UD queue pair that follows a membership, through
// ibv_attach_mcast(3) and ibv_detach_mcast(3) for instance. Its methods must
// not call the Channel or the ID.
type QueuePair interface {
	// AttachMulticast is called by Next with the join event's MGID and MLID.
	AttachMulticast(mgid netip.Addr, mlid uint16) error
	// DetachMulticast is called by Leave or Close with the same pair.
	DetachMulticast(mgid netip.Addr, mlid uint16) error
}

// Membership is one group joined, or being joined, on one id.
type Membership struct {
	id     *ID
	group  groupKey
	mode   JoinMode
	qp     QueuePair
	cookie uint64

	// The kernel's side, guarded by id.mu.
	handle     uint32
	kernelLeft bool

	// mu guards what follows. It comes after id.mu and isn't held during a call
	// that leaves, so that Next never waits for one.
	mu       sync.Mutex
	state    membershipState
	attached bool
	mgid     netip.Addr
	mlid     uint16
	deadline *time.Timer
}

type membershipState int

const (
	stateJoining membershipState = iota
	stateJoined
	stateFailed
	stateLeft
)

// Group is the group's address, or its MGID where JoinMGID was called.
func (m *Membership) Group() netip.Addr { return m.group.addr }

// Verbatim reports whether Group is a verbatim MGID, joined by JoinMGID.
func (m *Membership) Verbatim() bool { return m.group.mgid }

// ID is the id that holds the membership.
func (m *Membership) ID() *ID { return m.id }

// Mode is the mode that was joined with.
func (m *Membership) Mode() JoinMode { return m.mode }

// join asks the kernel; id.mu is held. m.mu is held throughout, so that Next
// doesn't deliver the join's event before the membership is complete.
func (m *Membership) join(timeout time.Duration) error {
	c := m.id.channel
	m.mu.Lock()
	defer m.mu.Unlock()
	if !c.registerMembership(m) {
		return m.id.error("join", m.group, net.ErrClosed)
	}
	join := c.cm.Join
	if m.group.mgid {
		join = c.cm.JoinMGID
	}
	handle, err := join(m.id.id, m.cookie, m.group.addr, uint16(m.mode))
	if err != nil {
		c.forget(m.cookie)
		m.state = stateLeft
		return m.id.error("join", m.group, err)
	}
	m.handle = handle
	if timeout <= 0 {
		timeout = DefaultJoinTimeout
	}
	m.deadline = time.AfterFunc(timeout, m.expire)
	return nil
}

// joined takes the join's event.
func (m *Membership) joined(ud sys.UDParam) (Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != stateJoining {
		return Event{}, false
	}
	m.deadline.Stop()
	params := m.id.source.params(ud)
	if m.qp != nil && m.mode == FullMember {
		if err := m.qp.AttachMulticast(params.MGID, params.MLID); err != nil {
			m.state = stateFailed
			return m.errorEvent("attach", err), true
		}
		m.attached, m.mgid, m.mlid = true, params.MGID, params.MLID
	}
	m.state = stateJoined
	return Event{Type: MulticastJoined, ID: m.id, Membership: m, Params: params}, true
}

// failed takes an error event. After the first the membership is failed
// already, and there is nothing new to say.
func (m *Membership) failed(err error) (Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != stateJoining && m.state != stateJoined {
		return Event{}, false
	}
	op := "join"
	if m.state == stateJoined {
		op = "keep membership of"
	}
	m.deadline.Stop()
	m.state = stateFailed
	return m.errorEvent(op, err), true
}

func (m *Membership) errorEvent(op string, err error) Event {
	return Event{Type: MulticastError, ID: m.id, Membership: m, Err: m.id.error(op, m.group, err)}
}

// expire cancels a join that has no answer at its deadline.
func (m *Membership) expire() {
	m.id.mu.Lock()
	defer m.id.mu.Unlock()
	m.mu.Lock()
	waiting := m.state == stateJoining
	if waiting {
		m.state = stateFailed
	}
	m.mu.Unlock()
	if !waiting {
		return
	}
	err := m.leaveKernel()
	m.id.channel.post(m.errorEvent("join", errors.Join(
		&refusal{"no answer by the deadline", syscall.ETIMEDOUT}, err)))
}

// leave ends the membership on this side of the kernel and detaches; id.mu is held.
func (m *Membership) leave() error {
	m.mu.Lock()
	m.state = stateLeft
	m.deadline.Stop()
	attached := m.attached
	m.attached = false
	m.mu.Unlock()
	if !attached {
		return nil
	}
	if err := m.qp.DetachMulticast(m.mgid, m.mlid); err != nil {
		return m.id.error("detach", m.group, err)
	}
	return nil
}

// leaveKernel makes the kernel leave, unless it has; id.mu is held. An errno
// that says that the kernel knows no such membership any more is returned too,
// but ends it.
func (m *Membership) leaveKernel() error {
	if m.kernelLeft {
		return nil
	}
	_, err := m.id.channel.cm.Leave(m.handle)
	m.kernelLeft = err == nil || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENXIO)
	if err != nil {
		return m.id.error("leave", m.group, err)
	}
	return nil
}
