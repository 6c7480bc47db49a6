package rdmatest

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// IGMP are the groups of an interface with the number of their users, as
// /proc/net/igmp tells them; path "" is the initial namespace. nil where there
// is no such namespace or interface.
func (n *Node) IGMP(path, netdev string) map[netip.Addr]int {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	ns := n.namespaces[path]
	if ns == nil {
		return nil
	}
	l := ns.find(netdev)
	if l == nil {
		return nil
	}
	return maps.Clone(l.igmp)
}

// Member is an rdma_cm membership.
type Member struct {
	NetNS, Interface string
	Group            netip.Addr
	SendOnly         bool
	// Verbatim: Group is an MGID, joined by JoinMGID.
	Verbatim bool
}

// Memberships are the rdma_cm memberships alive on the node, those on
// interfaces that are gone too, sorted: one that nobody left is a leak.
func (n *Node) Memberships() []Member {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	var out []Member
	for _, m := range n.memberships {
		out = append(out, Member{
			NetNS:     m.id.ns.path,
			Interface: m.id.link.name,
			Group:     m.group.addr,
			Verbatim:  m.group.verbatim,
			SendOnly:  m.sendOnly,
		})
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(
			cmp.Compare(a.NetNS, b.NetNS),
			cmp.Compare(a.Interface, b.Interface),
			a.Group.Compare(b.Group),
		)
	})
	return out
}

// OpenHandles counts what is open on the node: files of rdma_cm, ids, and
// handles of network namespaces.
func (n *Node) OpenHandles() (files, ids, namespaces int) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	return len(n.files), len(n.ids), n.handles
}

// OpenWatches counts the watches open on the node's links and devices.
func (n *Node) OpenWatches() int {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	return len(n.watches)
}
