package rdmatest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// ipoib is the InfiniBand side of an IPoIB interface. It works, and rdma_cm can
// join on it, while its broadcast group is joined. Other groups of its own,
// those of sockets, it doesn't have here.
type ipoib struct {
	link *link
	port *port
	pkey uint16 // with the top bit, as IPoIB has it always
	qpn  uint32
	// broadcastAddr is the link's (dev->broadcast): scope and P_Key of all MGIDs
	// that are made from IP addresses.
	broadcastAddr [20]byte

	broadcast *mcastMember
	backoff   time.Duration
	retry     *time.Timer
}

// IPoIB waits so long before it asks again for a broadcast group that it
// didn't get, twice as long each time (ipoib_multicast.c).
const (
	firstBackoff = time.Second
	lastBackoff  = 16 * time.Second
)

// The scope of a broadcast group where nothing else was set.
const linkLocalScope = 2

// What follows is called with fabric.mu held, or from fabric.run.

// newIPoIB puts an IPoIB interface on a port.
func (p *port) newIPoIB(l *link, pkey uint16) {
	i := &ipoib{link: l, port: p, pkey: pkey | 0x8000, qpn: uint32(0x40 + l.index), backoff: firstBackoff}
	i.setScope(linkLocalScope)
	l.nic, l.ib = p.nic, i
	p.ipoib = append(p.ipoib, i)
	i.start()
}

func (i *ipoib) setScope(scope uint8) {
	i.broadcastAddr = [20]byte{
		1: 0xff, 2: 0xff, 3: 0xff, // the queue pair number of every group
		4: 0xff, 5: 0x10 | scope, 6: 0x40, 7: 0x1b,
		16: 0xff, 17: 0xff, 18: 0xff, 19: 0xff,
	}
	binary.BigEndian.PutUint16(i.broadcastAddr[8:], i.pkey)
}

// hardwareAddr is the interface's: flags, queue pair number, port GID.
func (i *ipoib) hardwareAddr() []byte {
	gid := i.port.gid().As16()
	return append(binary.BigEndian.AppendUint32(nil, i.qpn), gid[:]...)
}

func (i *ipoib) broadcastMGID() netip.Addr { return netip.AddrFrom16([16]byte(i.broadcastAddr[4:])) }

// start asks for the broadcast group, if it can be had.
func (i *ipoib) start() {
	_, ok := i.port.pkeyIndex(i.pkey)
	if i.link.down || i.link.gone || !i.port.active || !ok {
		return
	}
	i.broadcast = i.port.newMember(sa.MCMemberRecord{
		MGID:      i.broadcastMGID(),
		PortGID:   i.port.gid(),
		PKey:      i.pkey,
		JoinState: sa.FullMember,
	}, sa.MaskJoin|sa.MaskPKey, i.told)
	i.broadcast.join()
}

// told is ipoib_mcast_join_complete.
func (i *ipoib) told(_ *mcastMember, errno syscall.Errno) (end bool) {
	switch errno {
	case syscall.ENETRESET: // flush follows
		return false
	case 0:
		i.backoff = firstBackoff
		i.port.nic.node.linksChanged(i.link.ns)
		return false
	}
	i.broadcast = nil
	i.retry = time.AfterFunc(i.backoff, i.again)
	i.backoff = min(2*i.backoff, lastBackoff)
	return true
}

// again is the end of a wait; without fabric.mu.
func (i *ipoib) again() {
	f := i.port.subnet.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if i.retry != nil {
		i.retry = nil
		i.start()
	}
}

// stop leaves the broadcast group.
func (i *ipoib) stop() {
	if i.retry != nil {
		i.retry.Stop()
		i.retry = nil
	}
	if m := i.broadcast; m != nil {
		i.broadcast = nil
		m.end()
		i.port.nic.node.linksChanged(i.link.ns)
	}
}

// flush begins anew (ipoib_ib_dev_flush_*).
func (i *ipoib) flush() {
	i.stop()
	i.backoff = firstBackoff
	i.start()
}

// remove ends the interface.
func (i *ipoib) remove() {
	i.stop()
	i.port.ipoib = slices.DeleteFunc(i.port.ipoib, func(x *ipoib) bool { return x == i })
}

// mapMGID is the MGID of a group on an interface with that broadcast address
// (cma_set_mgid, ip_ib_mc_map, ipv6_ib_mc_map).
func mapMGID(group groupAddr, ps uint16, broadcast [20]byte) netip.Addr {
	if group.verbatim || rdma.IsVerbatimMGID(group.addr) {
		return group.addr
	}
	raw := [16]byte{0: 0xff, 1: 0x10 | broadcast[5]&0xf, 2: 0x40, 3: 0x1b, 4: broadcast[8], 5: broadcast[9]}
	if group.addr.Is4() {
		ip := group.addr.As4()
		copy(raw[12:], ip[:])
		raw[12] &= 0x0f
	} else {
		ip := group.addr.As16()
		raw[2] = 0x60
		copy(raw[6:], ip[6:])
	}
	if ps == sys.PortSpaceUDP {
		raw[3] = 0x01
	}
	return netip.AddrFrom16(raw)
}

// mustIPoIB is the IPoIB side of an interface that has to be one.
func (n *Node) mustIPoIB(path, netdev string) *ipoib {
	l := n.mustLink(path, netdev)
	if l.ib == nil {
		panic(fmt.Sprintf("rdmatest: %s in namespace %q isn't an IPoIB interface", netdev, path))
	}
	return l.ib
}
