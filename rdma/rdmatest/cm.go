package rdmatest

import (
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// file is an open rdma_cm device. Its methods answer as ucma.c and cma.c do for
// a RoCE v2 port, the checks in the same order.
type file struct {
	n      *Node
	ready  chan struct{} // there may be an event
	closed chan struct{}

	// Guarded by fabric.mu.
	isClosed bool
	events   []event
}

type event struct {
	sys.Event
	id *cmID
	m  *membership // of multicast events
}

// cmID is an rdma_cm id.
type cmID struct {
	file     *file
	ns       *namespace
	uid      uint64
	number   uint32
	ps       uint16
	bound    bool
	spoiled  bool  // by binding to an interface that isn't RDMA
	link     *link // nil: not bound, or to the wildcard
	addr     netip.Addr
	nic      *nic // whose slot it holds
	slot     int
	removed  bool // its device is
	reported uint32
}

// membership is a multicast handle.
type membership struct {
	id       *cmID
	uid      uint64
	handle   uint32
	group    netip.Addr
	sendOnly bool
	reported uint32
}

// qkeyUDP is RDMA_UDP_QKEY.
const qkeyUDP = 0x01234567

func (f *file) CreateID(ns sys.NetNS, uid uint64, ps uint16) (uint32, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	if err := f.n.fault(OpCreateID, nil, netip.Addr{}); err != nil {
		return 0, err
	}
	if f.isClosed {
		return 0, os.ErrClosed
	}
	space, err := f.n.namespace(ns)
	if err != nil {
		return 0, err
	}
	if ps != sys.PortSpaceUDP && ps != sys.PortSpaceIPoIB {
		return 0, syscall.EINVAL
	}
	id := &cmID{file: f, ns: space, uid: uid, number: lowestFree(f.n.ids), ps: ps}
	f.n.ids[id.number] = id
	return id.number, nil
}

// lowestFree is the number that xa_alloc gives: handles are used again at once.
func lowestFree[V any](table map[uint32]V) uint32 {
	var i uint32
	for {
		if _, used := table[i]; !used {
			return i
		}
		i++
	}
}

// find looks an id up; fabric.mu is held.
func (f *file) find(number uint32) (*cmID, error) {
	id := f.n.ids[number]
	switch {
	case f.isClosed:
		return nil, os.ErrClosed
	case id == nil:
		return nil, syscall.ENOENT
	case id.file != f:
		return nil, syscall.EINVAL
	}
	return id, nil
}

// findLive does so for a call that needs the device.
func (f *file) findLive(number uint32) (*cmID, error) {
	id, err := f.find(number)
	if err == nil && id.removed {
		return nil, syscall.ENXIO
	}
	return id, err
}

func (f *file) Bind(number uint32, addr netip.Addr) error {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	if err := f.n.fault(OpBind, nil, netip.Addr{}); err != nil {
		return err
	}
	id, err := f.findLive(number)
	if err != nil {
		return err
	}
	if id.bound {
		return syscall.EINVAL
	}
	if addr.IsUnspecified() {
		id.bound = true
		return nil
	}
	l := id.ns.byAddr(addr)
	switch {
	case l == nil:
		return syscall.EADDRNOTAVAIL
	case id.ps == sys.PortSpaceIPoIB: // for IPoIB interfaces only (cma_acquire_dev_by_src_ip)
		return syscall.EINVAL
	case l.nic == nil || id.spoiled:
		id.spoiled = true // the id keeps to the interface that it found first
		return syscall.ENODEV
	}
	id.bound, id.link, id.addr = true, l, addr
	id.nic, id.slot = l.nic, l.nic.gidIndex(l, addr)
	id.nic.hold(id.slot)
	return nil
}

func (f *file) QueryAddr(number uint32) (sys.BoundAddr, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	id, err := f.findLive(number)
	if err != nil {
		return sys.BoundAddr{}, err
	}
	b := sys.BoundAddr{Source: id.addr}
	if id.link != nil && id.link.nic != nil {
		b.NodeGUID = id.link.nic.guid
		b.Port = portNumber
		b.DeviceIndex = id.link.nic.index
	}
	return b, nil
}

func (f *file) Join(number uint32, uid uint64, group netip.Addr, flags uint16) (uint32, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	id, err := f.findLive(number)
	if err != nil {
		return 0, err
	}
	if err := f.n.fault(OpJoin, id.link, group); err != nil {
		return 0, err
	}
	if id, err = f.findLive(number); err != nil {
		return 0, err
	}
	switch {
	case flags > sys.JoinSendOnlyFullMember || id.link == nil || group.IsUnspecified():
		return 0, syscall.EINVAL
	case id.link.gone:
		return 0, syscall.ENODEV
	case group.Is6():
		return 0, rdma.ENOTSUPP
	}
	m := &membership{
		id:       id,
		uid:      uid,
		handle:   lowestFree(f.n.memberships),
		group:    group,
		sendOnly: flags == sys.JoinSendOnlyFullMember,
	}
	f.n.memberships[m.handle] = m
	if !m.sendOnly {
		id.link.join(group)
	}
	switch fault, ok := f.n.take(OpJoinEvent, id.link, group); {
	case ok && fault.Silent:
	case ok && fault.Err != 0:
		m.post(sys.EventMulticastError, fault.Err)
	default:
		m.post(sys.EventMulticastJoin, 0)
	}
	return m.handle, nil
}

func (f *file) JoinMGID(number uint32, _ uint64, _ netip.Addr, _ uint16) (uint32, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	if _, err := f.findLive(number); err != nil {
		return 0, err
	}
	return 0, rdma.ENOTSUPP
}

func (f *file) Leave(handle uint32) (uint32, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	m, err := f.findMembership(handle)
	if err != nil {
		return 0, err
	}
	if err := f.n.fault(OpLeave, m.id.link, m.group); err != nil {
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

func (f *file) Destroy(number uint32) (uint32, error) {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	id, err := f.find(number)
	if err != nil {
		return 0, err
	}
	if err := f.n.fault(OpDestroy, id.link, netip.Addr{}); err != nil {
		return 0, err
	}
	if id, err = f.find(number); err != nil {
		return 0, err
	}
	id.destroy()
	return id.reported, nil
}

func (f *file) GetEvent() (sys.Event, error) {
	for {
		f.n.fabric.mu.Lock()
		if len(f.events) > 0 {
			e := f.events[0]
			f.events = f.events[1:]
			if e.m != nil {
				e.m.reported++
			} else {
				e.id.reported++
			}
			f.n.fabric.mu.Unlock()
			return e.Event, nil
		}
		f.n.fabric.mu.Unlock()
		select {
		case <-f.ready:
		case <-f.closed:
			return sys.Event{}, os.ErrClosed
		}
	}
}

func (f *file) Close() error {
	f.n.fabric.mu.Lock()
	defer f.n.fabric.mu.Unlock()
	if f.isClosed {
		return os.ErrClosed
	}
	f.isClosed = true
	close(f.closed)
	for _, id := range f.n.ids {
		if id.file == f {
			id.destroy()
		}
	}
	f.events = nil
	delete(f.n.files, f)
	return nil
}

// post queues an event; the kernel drops those of an id without a uid.
func (f *file) post(e event) {
	if e.id.uid == 0 || f.isClosed {
		return
	}
	f.events = append(f.events, e)
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// post queues an event of a membership.
func (m *membership) post(kind uint32, errno syscall.Errno) {
	e := sys.Event{UID: m.uid, ID: m.handle, Type: kind, Status: -int32(errno)}
	index := -1
	if kind == sys.EventMulticastJoin && m.id.link.nic != nil {
		index = m.id.link.nic.gidIndex(m.id.link, m.id.addr)
	}
	if kind == sys.EventMulticastJoin && index < 0 {
		// The address went: ib_init_ah_from_mcmember fails, and the event tells
		// no reason (cma_make_mc_event).
		e.Type = sys.EventMulticastError
	}
	if index >= 0 {
		e.UD = sys.UDParam{
			QPN:       sys.QPNMulticast,
			QKey:      qkeyUDP,
			MGID:      m.group.As16(),
			SGIDIndex: uint8(index),
			HopLimit:  64,
			IsGlobal:  true,
			Port:      portNumber,
		}
	}
	m.id.file.post(event{Event: e, id: m.id, m: m})
}

// end leaves; whoever calls it drops the events.
func (m *membership) end() {
	delete(m.id.file.n.memberships, m.handle)
	if !m.sendOnly && !m.id.removed {
		m.id.link.leave(m.group)
	}
}

// destroy ends an id with its memberships and events.
func (id *cmID) destroy() {
	f := id.file
	for _, m := range f.n.memberships {
		if m.id == id {
			m.end()
		}
	}
	f.events = slices.DeleteFunc(f.events, func(e event) bool { return e.id == id })
	delete(f.n.ids, id.number)
	id.releaseGID()
}

// deviceRemoved ends what an id holds on a device that goes. The handles stay,
// as good for nothing, until the id is destroyed.
func (id *cmID) deviceRemoved() {
	id.file.post(event{Event: sys.Event{UID: id.uid, ID: id.number, Type: sys.EventDeviceRemoval}, id: id})
	for _, m := range id.file.n.memberships {
		if m.id == id && !m.sendOnly {
			id.link.leave(m.group)
		}
	}
	id.removed = true
	id.releaseGID()
}

// releaseGID lets go of the slot that an id holds.
func (id *cmID) releaseGID() {
	if id.nic != nil {
		id.nic.release(id.slot)
		id.nic = nil
	}
}
