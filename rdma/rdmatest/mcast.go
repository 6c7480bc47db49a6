package rdmatest

import (
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// mcastGroup is a group of a port (struct mcast_group of multicast.c), shared
// by IPoIB and every rdma_cm membership of whatever namespace. Requests for it
// are carried out one after the other.
type mcastGroup struct {
	port *port
	// rec is the group's, with the join states that the subnet manager has of
	// the port. Before its first answer it is empty but for the MGID.
	rec             sa.MCMemberRecord
	pending, active []*mcastMember
	lastJoin        *mcastMember
	members         [joinStates]int // by join state's bit
	state           mcastState
	refs            int
	pkeyIndex       int // -1: not known yet
	leaving         sa.JoinState
	retries         int
}

// joinStates is how many there are.
const joinStates = 4

// mcastState is what a group is doing. Idle and busy are the only ones that
// last; the others say what is to be done first.
type mcastState int

const (
	mcastIdle mcastState = iota
	mcastBusy
	mcastError
	mcastPKeyEvent
)

// leaveRetries is how often a leave that had no answer is sent again.
const leaveRetries = 3

// mcastMember is one membership (struct mcast_member).
type mcastMember struct {
	group *mcastGroup
	// rec is what was asked for, then what was given.
	rec    sa.MCMemberRecord
	mask   sa.Mask
	joined bool
	// told is called when the join has ended, and with ENETRESET when the
	// membership is lost. true: the member is of no use any more.
	told func(*mcastMember, syscall.Errno) (end bool)
}

// What follows is called with fabric.mu held, or from fabric.run.

// newMember is one that join is still to be called on.
func (p *port) newMember(rec sa.MCMemberRecord, mask sa.Mask, told func(*mcastMember, syscall.Errno) bool) *mcastMember {
	g := p.groups[rec.MGID]
	if g == nil {
		g = &mcastGroup{port: p, rec: sa.MCMemberRecord{MGID: rec.MGID}, pkeyIndex: -1, retries: leaveRetries}
		p.groups[rec.MGID] = g
	}
	g.refs++
	return &mcastMember{group: g, rec: rec, mask: mask, told: told}
}

// join asks for membership (ib_sa_join_multicast).
func (m *mcastMember) join() {
	g := m.group
	g.pending = append(g.pending, m)
	if g.state == mcastIdle {
		g.state = mcastBusy
		g.refs++
		g.queue()
	}
}

// end leaves, or cancels the join (ib_sa_free_multicast).
func (m *mcastMember) end() {
	g := m.group
	if m.joined {
		m.joined = false
		g.count(m.rec.JoinState, -1)
	}
	g.forget(m)
	if g.state == mcastIdle {
		g.state = mcastBusy // the work takes the member's reference over
		g.queue()
		return
	}
	g.release()
}

func (g *mcastGroup) queue() { g.port.subnet.fabric.run(g.work) }

func (g *mcastGroup) release() {
	if g.refs--; g.refs == 0 {
		delete(g.port.groups, g.rec.MGID)
	}
}

func (g *mcastGroup) forget(m *mcastMember) {
	is := func(x *mcastMember) bool { return x == m }
	g.pending = slices.DeleteFunc(g.pending, is)
	g.active = slices.DeleteFunc(g.active, is)
}

// count adjusts the number of members of each join state.
func (g *mcastGroup) count(state sa.JoinState, n int) {
	for i := range g.members {
		if state&(1<<i) != 0 {
			g.members[i] += n
		}
	}
}

// unused are the join states that the subnet manager has, and no member.
func (g *mcastGroup) unused() sa.JoinState {
	var state sa.JoinState
	for i, n := range g.members {
		if n == 0 {
			state |= 1 << i
		}
	}
	return state & g.rec.JoinState
}

// work does what there is to do until the subnet manager has to be waited for
// (mcast_work_handler).
func (g *mcastGroup) work() {
	for {
		switch {
		case g.state != mcastBusy:
			g.reset()
		case len(g.pending) > 0:
			if g.next() {
				return
			}
		default:
			state := g.unused()
			if state == 0 {
				g.state = mcastIdle
				g.release()
				return
			}
			g.rec.JoinState &^= state
			if g.sendLeave(state) == 0 {
				return
			}
		}
	}
}

// next takes the first pending join; true: an answer has to be waited for.
func (g *mcastGroup) next() (wait bool) {
	m := g.pending[0]
	state := m.rec.JoinState
	if state == g.rec.JoinState&state { // the port is such a member already
		g.forget(m)
		var errno syscall.Errno
		if matches(g.rec, m.rec, m.mask) {
			g.admit(m, state)
		} else {
			errno = syscall.EINVAL
		}
		m.tell(errno)
		return false
	}
	g.lastJoin = m
	errno := g.port.query(OpSASet, m.mask, m.rec, g.joinAnswered)
	if errno == 0 {
		return true
	}
	g.forget(m)
	m.tell(errno)
	return false
}

// admit makes a member one.
func (g *mcastGroup) admit(m *mcastMember, state sa.JoinState) {
	m.joined = true
	g.count(state, 1)
	g.rec.JoinState |= state
	m.rec = g.rec
	m.rec.JoinState = state
	g.active = append(g.active, m)
}

func (m *mcastMember) tell(errno syscall.Errno) {
	if m.told(m, errno) {
		m.end()
	}
}

// joinAnswered is join_handler.
func (g *mcastGroup) joinAnswered(errno syscall.Errno, rec sa.MCMemberRecord) {
	if errno != 0 {
		// The one that asked may have left meanwhile.
		if len(g.pending) > 0 && g.pending[0] == g.lastJoin {
			m := g.lastJoin
			g.forget(m)
			m.tell(errno)
		}
	} else {
		if i, ok := g.port.pkeyIndex(rec.PKey); ok && g.state == mcastBusy && g.pkeyIndex < 0 {
			g.pkeyIndex = i
		}
		g.rec = rec
	}
	g.work()
}

// sendLeave tells the subnet manager that the port is no such member any more.
func (g *mcastGroup) sendLeave(state sa.JoinState) syscall.Errno {
	g.leaving = state
	rec := g.rec
	rec.JoinState = state
	return g.port.query(OpSADelete, sa.MaskJoin, rec, g.leaveAnswered)
}

// leaveAnswered is leave_handler.
func (g *mcastGroup) leaveAnswered(errno syscall.Errno, _ sa.MCMemberRecord) {
	if errno != 0 && g.retries > 0 && g.sendLeave(g.leaving) == 0 {
		g.retries--
		return
	}
	g.work()
}

// reset throws all members out, and forgets what the subnet manager has: it is
// never told (process_group_error).
func (g *mcastGroup) reset() {
	pkeyEvent := g.state == mcastPKeyEvent
	g.state = mcastBusy
	if i, ok := g.port.pkeyIndex(g.rec.PKey); pkeyEvent && ok && i == g.pkeyIndex {
		return
	}
	for len(g.active) > 0 {
		m := g.active[0]
		g.forget(m)
		g.count(m.rec.JoinState, -1)
		m.joined = false
		m.tell(syscall.ENETRESET)
	}
	g.rec.JoinState = 0
}

// groupsEvent is an event of the port for all its groups (mcast_groups_event).
func (p *port) groupsEvent(pkey bool) {
	for _, mgid := range slices.SortedFunc(maps.Keys(p.groups), netip.Addr.Compare) {
		g := p.groups[mgid]
		idle := g.state == mcastIdle
		switch {
		case !pkey:
			g.state = mcastError
		case g.state != mcastError:
			g.state = mcastPKeyEvent
		}
		if idle {
			g.refs++
			g.queue()
		}
	}
}

// matches reports whether a group is as a record asks (cmp_rec); MTU and rate
// are left to the subnet manager where the port isn't a member yet.
func matches(group, rec sa.MCMemberRecord, mask sa.Mask) bool {
	const mtu, rate = sa.MaskMTU | sa.MaskMTUSelector, sa.MaskRate | sa.MaskRateSelector
	switch {
	case mask&sa.MaskPortGID != 0 && rec.PortGID != group.PortGID,
		mask&sa.MaskQKey != 0 && rec.QKey != group.QKey,
		mask&sa.MaskTClass != 0 && rec.TClass != group.TClass,
		mask&sa.MaskPKey != 0 && rec.PKey != group.PKey,
		mask&sa.MaskSL != 0 && rec.SL != group.SL,
		mask&sa.MaskFlowLabel != 0 && rec.FlowLabel != group.FlowLabel,
		mask&sa.MaskHopLimit != 0 && rec.HopLimit != group.HopLimit,
		mask&mtu == mtu && rec.MTU != group.MTU,
		mask&rate == rate && rec.Rate != group.Rate:
		return false
	}
	return true
}
