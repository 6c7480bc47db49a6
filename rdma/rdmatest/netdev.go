package rdmatest

import (
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

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
