package rdmatest

import (
	"fmt"
	"net/netip"
	"slices"
)

type namespace struct {
	path  string
	links []*link
}

// link is a network interface.
type link struct {
	ns    *namespace
	index int
	name  string
	mac   [6]byte // Ethernet
	nic   *nic    // nil: not RDMA
	ib    *ipoib  // nil: not IPoIB
	down  bool    // administratively
	addrs []netip.Prefix
	igmp  map[netip.Addr]int // users of each group
	gone  bool
}

// What follows is called with fabric.mu held.

func (n *Node) addLink(path, name string, addrs []netip.Prefix) *link {
	ns := n.mustNamespace(path)
	if ns.find(name) != nil {
		panic(fmt.Sprintf("rdmatest: a second interface %s in namespace %q", name, path))
	}
	n.nextIndex++
	l := &link{
		ns:    ns,
		index: n.nextIndex,
		name:  name,
		mac:   [6]byte{2, 0, byte(n.number >> 8), byte(n.number), byte(n.nextIndex >> 8), byte(n.nextIndex)},
		addrs: slices.Clone(addrs),
		igmp:  map[netip.Addr]int{},
	}
	ns.links = append(ns.links, l)
	n.linksChanged(ns)
	return l
}

func (ns *namespace) find(name string) *link {
	for _, l := range ns.links {
		if l.name == name {
			return l
		}
	}
	return nil
}

// byAddr is the interface that has an address.
func (ns *namespace) byAddr(addr netip.Addr) *link {
	for _, l := range ns.links {
		for _, p := range l.addrs {
			if p.Addr() == addr {
				return l
			}
		}
	}
	return nil
}

// delete ends an interface: on RoCE its GIDs go, and its memberships silently; on
// InfiniBand these are the port's, and stay.
func (l *link) delete() {
	l.gone = true
	clear(l.igmp)
	switch {
	case l.ib != nil:
		l.ib.remove()
	case l.nic != nil:
		l.nic.deleteGIDs(l)
	}
}

// hardwareAddr is 6 bytes on Ethernet, 20 on IPoIB.
func (l *link) hardwareAddr() []byte {
	if l.ib != nil {
		return l.ib.hardwareAddr()
	}
	return slices.Clone(l.mac[:])
}

// join counts an IGMP user (ip_mc_inc_group).
func (l *link) join(group netip.Addr) {
	l.igmp[group]++
	if l.igmp[group] == 1 && l.nic != nil && !l.down {
		l.nic.node.fabric.report(l.nic, group)
	}
}

// leave counts one less (ip_mc_dec_group).
func (l *link) leave(group netip.Addr) {
	if l.gone || l.igmp[group] == 0 {
		return
	}
	l.igmp[group]--
	if l.igmp[group] > 0 {
		return
	}
	delete(l.igmp, group)
	if l.nic != nil && !l.down {
		l.nic.node.fabric.leave(l.nic, group)
	}
}
