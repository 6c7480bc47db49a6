package rdmatest

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// file is an open rdma_cm device. Its methods answer as ucma.c and cma.c do, the
// checks in the same order.
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
	file    *file
	ns      *namespace
	uid     uint64
	number  uint32
	ps      uint16
	bound   bool
	spoiled bool  // by binding to an interface that isn't RDMA
	link    *link // nil: not bound, or to the wildcard
	addr    netip.Addr
	nic     *nic // that it is bound to
	slot    int  // of its GID, on RoCE
	// broadcastAddr is its IPoIB interface's at the time of binding, and so is
	// the P_Key in it (struct rdma_dev_addr). qkey is once it is known.
	broadcastAddr [20]byte
	qkey          uint32
	removed       bool // its device is
	reported      uint32
}

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
	case id.ps == sys.PortSpaceIPoIB && l.ib == nil: // for IPoIB interfaces only (cma_acquire_dev_by_src_ip)
		return syscall.EINVAL
	case l.nic == nil || !l.nic.visible(id.ns) || id.spoiled:
		id.spoiled = true // the id keeps to the interface that it found first
		return syscall.ENODEV
	}
	id.bound, id.link, id.addr = true, l, addr
	id.nic = l.nic
	if l.ib != nil {
		id.broadcastAddr = l.ib.broadcastAddr
		return nil
	}
	id.slot = l.nic.gidIndex(l, addr)
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
	if id.nic != nil {
		b.NodeGUID = id.nic.guid
		b.Port = portNumber
		b.DeviceIndex = id.nic.index
		b.PKey = id.pkey() // 0 on RoCE
	}
	return b, nil
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
	id.release()
}

// deviceRemoved ends what an id holds on a device that goes. The handles stay,
// as good for nothing, until the id is destroyed.
func (id *cmID) deviceRemoved() {
	id.file.post(event{Event: sys.Event{UID: id.uid, ID: id.number, Type: sys.EventDeviceRemoval}, id: id})
	for _, m := range id.file.n.memberships {
		if m.id == id {
			m.leave()
		}
	}
	id.removed = true
	id.release()
}

// release lets go of the device, and of the slot that an id holds there.
func (id *cmID) release() {
	if id.nic != nil && id.nic.ib == nil {
		id.nic.release(id.slot)
	}
	id.nic = nil
}

// pkey is the one of an IPoIB interface.
func (id *cmID) pkey() uint16 { return binary.BigEndian.Uint16(id.broadcastAddr[8:]) }
