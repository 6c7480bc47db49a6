package rdmatest

import (
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// membership is a multicast handle.
type membership struct {
	id       *cmID
	uid      uint64
	handle   uint32
	group    groupAddr
	sendOnly bool
	reported uint32
	member   *mcastMember // on InfiniBand
}

// groupAddr is a group as it was named: by its IP address, or by its MGID
// (AF_IB).
type groupAddr struct {
	addr     netip.Addr
	verbatim bool
}

// qkeyUDP is RDMA_UDP_QKEY.
const qkeyUDP = 0x01234567

func (f *file) Join(number uint32, uid uint64, group netip.Addr, flags uint16) (uint32, error) {
	return f.join(number, uid, groupAddr{addr: group}, flags)
}

func (f *file) JoinMGID(number uint32, uid uint64, mgid netip.Addr, flags uint16) (uint32, error) {
	return f.join(number, uid, groupAddr{addr: mgid, verbatim: true}, flags)
}

func (f *file) join(number uint32, uid uint64, group groupAddr, flags uint16) (uint32, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	id, err := f.findLive(number)
	if err != nil {
		return 0, err
	}
	if err := f.n.fault(OpJoin, id.link, group.addr); err != nil {
		return 0, err
	}
	if id, err = f.findLive(number); err != nil {
		return 0, err
	}
	if flags > sys.JoinSendOnlyFullMember || id.link == nil || group.addr.IsUnspecified() {
		return 0, syscall.EINVAL
	}
	m := &membership{
		id:       id,
		uid:      uid,
		handle:   lowestFree(f.n.memberships),
		group:    group,
		sendOnly: flags == sys.JoinSendOnlyFullMember,
	}
	take := m.takeRoCE
	if id.nic.ib != nil {
		take = m.takeIB
	}
	request, err := take()
	if err != nil {
		return 0, err
	}
	f.n.memberships[m.handle] = m
	switch fault, ok := f.n.take(OpJoinEvent, id.link, group.addr); {
	case ok && fault.Silent:
	case ok && fault.Err != 0:
		m.fail(fault.Err)
	default:
		request()
	}
	return m.handle, nil
}

// takeRoCE takes a join (cma_iboe_join_multicast). request brings its event
// about.
func (m *membership) takeRoCE() (request func(), err error) {
	switch protocol := m.id.nic.protocol; {
	case protocol == iWARP:
		return nil, syscall.ENOSYS
	case m.id.link.gone:
		return nil, syscall.ENODEV
	case protocol == roceV1:
		return m.joinedRoCE, nil
	case m.group.verbatim || m.group.addr.Is6():
		return nil, rdma.ENOTSUPP
	}
	if !m.sendOnly {
		m.id.link.join(m.group.addr)
	}
	return m.joinedRoCE, nil
}

func (m *membership) joinedRoCE() {
	index := m.id.nic.gidIndex(m.id.link, m.id.addr)
	if index < 0 {
		// The address went: ib_init_ah_from_mcmember fails, and the event tells
		// no reason (cma_make_mc_event).
		m.fail(0)
		return
	}
	ud := sys.UDParam{
		QKey:      qkeyUDP,
		MGID:      m.group.addr.As16(),
		SGIDIndex: uint8(index),
		HopLimit:  64,
	}
	if m.id.nic.protocol == roceV1 {
		ud.HopLimit = 1
		if m.group.addr.Is4() { // cma_iboe_set_mgid
			ud.MGID[0], ud.MGID[1] = 0xff, 0x0e
		}
	}
	m.joined(ud)
}

// takeIB takes a join (cma_join_ib_multicast). The record that is asked for is
// the broadcast group's but for what is set here.
func (m *membership) takeIB() (request func(), err error) {
	id := m.id
	p := id.nic.ib
	broadcast := p.groups[netip.AddrFrom16([16]byte(id.broadcastAddr[4:]))]
	if broadcast == nil {
		return nil, syscall.EADDRNOTAVAIL
	}
	rec := broadcast.rec
	if id.qkey == 0 {
		id.qkey = qkeyUDP
		if id.ps == sys.PortSpaceIPoIB {
			id.qkey = rec.QKey
		}
	}
	rec.MGID = mapMGID(m.group, id.ps, id.broadcastAddr)
	rec.QKey = id.qkey
	rec.PortGID = p.gid()
	rec.PKey = id.pkey()
	rec.JoinState = sa.FullMember
	if m.sendOnly {
		rec.JoinState = sa.SendOnlyFullMember
	}
	mask := sa.MaskJoin | sa.MaskPKey | sa.MaskQKey | sa.MaskSL | sa.MaskFlowLabel | sa.MaskTClass
	if id.ps == sys.PortSpaceIPoIB {
		mask |= sa.MaskRate | sa.MaskRateSelector | sa.MaskMTU | sa.MaskMTUSelector | sa.MaskHopLimit
	}
	return func() {
		m.member = p.newMember(rec, mask, m.told)
		m.member.join()
	}, nil
}

// told is cma_ib_mc_handler. It keeps the member: the handle is the
// application's to leave.
func (m *membership) told(member *mcastMember, errno syscall.Errno) (end bool) {
	rec := member.rec
	switch {
	case rec.QKey == 0 || rec.QKey != m.id.qkey:
		// cma_set_qkey fails, and there is no event.
	case errno != 0:
		m.fail(errno)
	default:
		m.joined(sys.UDParam{
			QKey:         rec.QKey,
			MGID:         rec.MGID.As16(),
			FlowLabel:    rec.FlowLabel,
			HopLimit:     rec.HopLimit,
			TrafficClass: rec.TClass,
			MLID:         rec.MLID,
			SL:           rec.SL,
			StaticRate:   uint8(rec.Rate),
		})
	}
	return false
}

// joined queues the join's event.
func (m *membership) joined(ud sys.UDParam) {
	ud.QPN, ud.IsGlobal, ud.Port = sys.QPNMulticast, true, portNumber
	m.post(sys.Event{Type: sys.EventMulticastJoin, UD: ud})
}

// fail queues an error event.
func (m *membership) fail(errno syscall.Errno) {
	m.post(sys.Event{Type: sys.EventMulticastError, Status: -int32(errno)})
}

func (m *membership) post(e sys.Event) {
	e.UID, e.ID = m.uid, m.handle
	m.id.file.post(event{Event: e, id: m.id, m: m})
}

func (f *file) Leave(handle uint32) (uint32, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	m, err := f.findMembership(handle)
	if err != nil {
		return 0, err
	}
	if err := f.n.fault(OpLeave, m.id.link, m.group.addr); err != nil {
		return 0, err
	}
	if m, err = f.findMembership(handle); err != nil {
		return 0, err
	}
	m.end()
	f.events = slices.DeleteFunc(f.events, func(e event) bool { return e.m == m })
	return m.reported, nil
}

func (f *file) findMembership(handle uint32) (*membership, error) {
	m := f.n.memberships[handle]
	switch {
	case f.isClosed:
		return nil, os.ErrClosed
	case m == nil:
		return nil, syscall.ENOENT
	case m.id.file != f:
		return nil, syscall.EINVAL
	case m.id.removed:
		return nil, syscall.ENXIO
	}
	return m, nil
}

// end leaves; whoever calls it drops the events.
func (m *membership) end() {
	delete(m.id.file.n.memberships, m.handle)
	m.leave()
}

// leave is what the network learns of it. Of a device that went it has learnt
// already.
func (m *membership) leave() {
	switch {
	case m.id.removed:
	case m.member != nil:
		m.member.end()
		m.member = nil
	case m.id.nic.ib == nil && !m.sendOnly:
		m.id.link.leave(m.group.addr)
	}
}
