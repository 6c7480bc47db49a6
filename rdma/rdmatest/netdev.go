package rdmatest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// AddMACVLAN makes a macvlan on parent, an interface of a NIC in the initial
// namespace, and puts it into the namespace at path.
func (n *Node) AddMACVLAN(path, netdev, parent string, addrs ...netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	p := n.mustLink("", parent)
	l := n.addLink(path, netdev, addrs)
	if p.ib != nil {
		panic("rdmatest: a macvlan on the IPoIB interface " + parent)
	}
	if p.nic != nil {
		p.nic.serve(l)
	}
}

// AddPlainInterface makes an Ethernet interface without RDMA in the namespace
// at path; "" is the initial one.
func (n *Node) AddPlainInterface(path, netdev string, addrs ...netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	n.addLink(path, netdev, addrs)
}

// DeleteInterface deletes an interface. RoCE memberships on it are lost without
// an IGMP leave on the wire and without an event; InfiniBand ones, which are the
// port's, stay until they are left.
func (n *Node) DeleteInterface(path, netdev string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	l.delete()
	l.ns.links = slices.DeleteFunc(l.ns.links, func(x *link) bool { return x == l })
	n.linksChanged(l.ns)
}

// AddAddress gives an interface one more address, and its port a GID for it.
func (n *Node) AddAddress(path, netdev string, addr netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	if slices.Contains(l.addrs, addr) {
		panic(fmt.Sprintf("rdmatest: a second %v on %s", addr, netdev))
	}
	l.addrs = append(l.addrs, addr)
	n.linksChanged(l.ns)
	if l.nic != nil && l.ib == nil {
		l.nic.addGID(l, netip.AddrFrom16(addr.Addr().As16()))
	}
}

// DeleteAddress takes an address away. rdma_cm tells nobody, and memberships
// stay; the slot of its GID is used again only once the ids that are bound to
// it have been destroyed.
func (n *Node) DeleteAddress(path, netdev string, addr netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	if !slices.Contains(l.addrs, addr) {
		panic(fmt.Sprintf("rdmatest: no %v on %s", addr, netdev))
	}
	l.addrs = slices.DeleteFunc(l.addrs, func(p netip.Prefix) bool { return p == addr })
	n.linksChanged(l.ns)
	if l.nic != nil && l.ib == nil {
		l.nic.deleteGID(l, addr.Addr())
	}
}

// SetInterface sets an interface administratively up or down, as "ip link set"
// does. IPoIB leaves its broadcast group, and asks for it anew at once. On
// Ethernet nothing is sent while it is down, not even that a group was left; up
// again, the kernel reports the groups that it has.
func (n *Node) SetInterface(path, netdev string, up bool) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	if l.down == !up {
		return
	}
	l.down = !up
	if l.ib != nil {
		l.ib.flush()
	} else if l.nic != nil && up {
		for group := range l.igmp {
			n.fabric.report(l.nic, group)
		}
	}
	n.linksChanged(l.ns)
}

// SetBroadcastScope gives an IPoIB interface a broadcast address of another
// scope, and thereby the MGIDs of IP groups that are joined on ids bound from
// now on. The subnet needs a broadcast group of it (Subnet.AddPartition).
func (n *Node) SetBroadcastScope(path, netdev string, scope uint8) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	i := n.mustIPoIB(path, netdev)
	i.stop()
	i.setScope(scope)
	i.flush()
	n.linksChanged(i.link.ns)
}

// ChangeHardwareAddr gives an interface another hardware address, as a bond's
// failover does with fail_over_mac=active, which IPoIB's bonds have always:
// every id bound on it gets ADDR_CHANGE, and keeps its memberships.
func (n *Node) ChangeHardwareAddr(path, netdev string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	if l.ib != nil {
		l.ib.qpn++
	} else {
		l.changeMAC()
	}
	for _, id := range n.ids {
		if id.link == l && !id.removed {
			id.file.post(event{Event: sys.Event{UID: id.uid, ID: id.number, Type: sys.EventAddrChange}, id: id})
		}
	}
	n.linksChanged(l.ns)
}

// changeMAC moves the default GID along; fabric.mu is held.
func (l *link) changeMAC() {
	old := linkLocal(l.mac)
	l.mac[1]++ // its first byte says that it is of local making
	if l.nic != nil {
		l.nic.deleteGID(l, old)
		l.nic.addGID(l, linkLocal(l.mac))
	}
}
