package rdmatest

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// The requests of a kernel to the subnet manager, for SAFault.
const (
	// OpSASet joins a port to a group.
	OpSASet Op = "SA set"
	// OpSADelete leaves it.
	OpSADelete Op = "SA delete"
)

// SAFault makes the subnet manager refuse, lose, or delay a kernel's request
// for an MCMemberRecord. Of Status, Silent and Late at most one is set.
type SAFault struct {
	// Op is what it hits: OpSASet or OpSADelete; "": both.
	Op Op
	// MGID, Node and Device narrow it down; their zero values match any.
	MGID         netip.Addr
	Node, Device string
	// Status is the answer, nothing having been done: 0x0200 is what OpenSM gives
	// most often. Kernels turn every status into EINVAL.
	Status uint16
	// Silent: the request is lost. The kernel waits for Subnet.SetTimeout, then
	// gives ETIMEDOUT.
	Silent bool
	// Late: requests are kept until the fault is removed, and carried out then,
	// the first one first. A kernel whose patience ended before that gives
	// ETIMEDOUT, and the subnet manager makes it a member all the same.
	Late bool
	// Times is how often it happens; 0: until it is removed.
	Times int
}

type saFault struct {
	SAFault
	left int
	kept []*saQuery
}

// Inject adds a fault. Of several that match, the first added happens. The
// returned function removes it; calling it again does nothing.
func (s *Subnet) Inject(f SAFault) (remove func()) {
	s.fabric.mu.Lock()
	defer s.fabric.mu.Unlock()
	fault := &saFault{SAFault: f, left: f.Times}
	s.faults = append(s.faults, fault)
	return func() {
		s.fabric.mu.Lock()
		defer s.fabric.mu.Unlock()
		s.removeFault(fault)
		kept := fault.kept
		fault.kept = nil
		for _, q := range kept {
			s.carryOut(q)
		}
	}
}

// saQuery is a request under way (struct ib_sa_query).
type saQuery struct {
	port *port
	op   Op
	mask sa.Mask
	rec  sa.MCMemberRecord
	// answered gets the answer, or an errno, once. nil: nobody waits any more.
	answered func(syscall.Errno, sa.MCMemberRecord)
	timer    *time.Timer
}

// What follows is called with fabric.mu held.

func (s *Subnet) removeFault(f *saFault) {
	s.faults = slices.DeleteFunc(s.faults, func(x *saFault) bool { return x == f })
}

// query sends a request (ib_sa_mcmember_rec_query). EAGAIN: the port doesn't
// know its subnet manager, and answered won't be called.
func (p *port) query(op Op, mask sa.Mask, rec sa.MCMemberRecord, answered func(syscall.Errno, sa.MCMemberRecord)) syscall.Errno {
	if !p.smKnown {
		return syscall.EAGAIN
	}
	q := &saQuery{port: p, op: op, mask: mask, rec: rec, answered: answered}
	p.queries[q] = true
	p.subnet.receive(q)
	if q.answered != nil {
		q.timer = time.AfterFunc(p.subnet.timeout, q.expire)
	}
	return 0
}

// receive takes a request from the wire.
func (s *Subnet) receive(q *saQuery) {
	if s.stopped {
		return
	}
	f := s.match(q)
	switch {
	case f == nil:
		s.carryOut(q)
	case f.Late:
		f.kept = append(f.kept, q)
	case f.Silent:
	default:
		q.answer(syscall.EINVAL, sa.MCMemberRecord{})
	}
}

// match is the fault that happens to a request, if any.
func (s *Subnet) match(q *saQuery) *saFault {
	for _, f := range s.faults {
		switch {
		case f.Op != "" && f.Op != q.op:
			continue
		case f.MGID.IsValid() && f.MGID != q.rec.MGID:
			continue
		case f.Node != "" && f.Node != q.port.nic.node.name:
			continue
		case f.Device != "" && f.Device != q.port.nic.name:
			continue
		}
		if f.Times > 0 {
			if f.left--; f.left == 0 {
				s.removeFault(f)
			}
		}
		return f
	}
	return nil
}

// carryOut is the subnet manager's work. Its answer to a port that has gone
// meanwhile, or waits no more, is lost.
func (s *Subnet) carryOut(q *saQuery) {
	if s.stopped {
		return
	}
	r := sa.Request{Requester: q.port.guid, Mask: q.mask, Record: q.rec}
	do := s.sa.Set
	if q.op == OpSADelete {
		do = s.sa.Delete
	}
	rec, err := do(r)
	switch {
	case errors.Is(err, sa.ErrNoAnswer):
	case err != nil:
		q.answer(syscall.EINVAL, sa.MCMemberRecord{}) // whatever the status (recv_handler)
	default:
		q.answer(0, rec)
	}
}

// answer gives an answer to whoever waits for it.
func (q *saQuery) answer(errno syscall.Errno, rec sa.MCMemberRecord) {
	answered := q.answered
	q.cancel()
	if answered != nil {
		q.port.subnet.fabric.run(func() { answered(errno, rec) })
	}
}

// cancel makes nobody wait any more.
func (q *saQuery) cancel() {
	q.answered = nil
	if q.timer != nil {
		q.timer.Stop()
	}
	delete(q.port.queries, q)
}

// expire ends the wait; without fabric.mu.
func (q *saQuery) expire() {
	f := q.port.subnet.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	q.answer(syscall.ETIMEDOUT, sa.MCMemberRecord{})
}
