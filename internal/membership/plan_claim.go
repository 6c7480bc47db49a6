package membership

import (
	"net/netip"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// place is where a membership is claimed.
type place struct {
	scope string
	netns string // path; "" with NodeScope
}

// claim adds a membership of a group on an interface for whoever claims it.
func (p *planner) claim(by *claimant, group *Group, mode rdma.JoinMode, at place, iface rdma.Interface) *refusal {
	if problem, ok := p.unable[Port{iface.Device, iface.Port}]; ok {
		return refuse(problem.Reason, "interface %s can't be used: %s", iface.Name, problem.Message)
	}
	if no := unsupported(group, iface); no != nil {
		return no
	}
	bind, ok := bindAddr(iface)
	if !ok {
		return wait(ReasonNoInterfaceAddress, "interface %s has no IPv4 address that rdma_cm can bind to", iface.Name)
	}
	key := Key{Scope: at.scope, Interface: iface.Name, PortSpace: group.PortSpace, Address: group.Address, Verbatim: group.Verbatim}
	if iface.LinkLayer == rdma.LinkLayerEthernet {
		// The kernel binds ids of port space IPoIB to IPoIB interfaces alone
		// (EINVAL); on RoCE the spaces make no difference on the wire.
		key.PortSpace = rdma.PortSpaceUDP
	}
	have := p.wanted[key]
	switch {
	case have != nil && have.GroupUID != group.UID:
		return wait(ReasonAddressInUse, "address %s on interface %s is MulticastGroup %s/%s's", group.Address, iface.Name, have.GroupNamespace, have.GroupName)
	case by.limit > 0 && !by.held[key] && len(by.held) >= by.limit:
		return refuse(ReasonPodLimitReached, "the pod has %d memberships already, the most that this node's agent allows (--max-memberships-per-pod)", by.limit)
	case p.limits.PerNode > 0 && have == nil && len(p.wanted) >= p.limits.PerNode:
		return refuse(ReasonNodeLimitReached, "the node has %d memberships already, the most that its agent allows (--max-memberships-per-node)", p.limits.PerNode)
	case p.limits.Groups > 0 && !p.joins[group.UID] && len(p.joins) >= p.limits.Groups:
		return refuse(ReasonNodeLimitReached, "the node takes part in %d groups already, the most that its MulticastNode holds", p.limits.Groups)
	}
	if have == nil {
		have = &Wanted{
			Key: key, GroupUID: group.UID, GroupNamespace: group.Namespace, GroupName: group.Name,
			Generation: group.Generation, Mode: mode, TrafficClass: group.TrafficClass, NetNS: at.netns, BindAddr: bind,
			Index: iface.Index, Device: iface.Device, Port: iface.Port, PKey: iface.PKey, LinkLayer: iface.LinkLayer,
		}
		p.wanted[key], p.joins[group.UID] = have, true
	}
	if mode == rdma.FullMember {
		have.Mode = rdma.FullMember
	}
	if !slices.Contains(have.Holders, by.holder) {
		have.Holders = append(have.Holders, by.holder)
	}
	by.held[key] = true
	return nil
}

// unsupported: rdma_cm has no such group on the interface's kind of port.
func unsupported(group *Group, iface rdma.Interface) *refusal {
	switch {
	case iface.LinkLayer != rdma.LinkLayerEthernet:
		return nil
	case group.Verbatim:
		return refuse(ReasonUnsupportedAddress, "interface %s is Ethernet (RoCE), where rdma_cm has no verbatim MGIDs (the kernel answers ENOTSUPP, errno 524): MGID %s takes an InfiniBand interface, and the group's spec.interfaceSelector.linkLayers can select those alone", iface.Name, group.Address)
	case group.Address.Is6():
		return refuse(ReasonUnsupportedAddress, "interface %s is RoCE v2, where rdma_cm supports IPv4 groups only (the kernel answers ENOTSUPP, errno 524); %s is IPv6", iface.Name, group.Address)
	}
	return nil
}

// bindAddr is the first IPv4 address, else, on InfiniBand, the first one. The
// id's own GID is made from it on RoCE, where groups are IPv4; on InfiniBand it
// only says which interface.
func bindAddr(iface rdma.Interface) (netip.Addr, bool) {
	for _, a := range iface.Addrs {
		if a.Addr().Is4() {
			return a.Addr(), true
		}
	}
	if iface.LinkLayer == rdma.LinkLayerEthernet || len(iface.Addrs) == 0 {
		return netip.Addr{}, false
	}
	return iface.Addrs[0].Addr(), true
}

// oneStatePerPort finds what has to be joined as a full member because another
// interface of its InfiniBand port, a pod's for instance, is one of the same
// MGID.
func (p *planner) oneStatePerPort() {
	type onPort struct {
		port  Port
		pkey  uint16 // a part of the MGID
		space rdma.PortSpace
		group groupID
	}
	of := func(w *Wanted) onPort {
		return onPort{Port{w.Device, w.Port}, w.PKey | 0x8000, w.PortSpace, w.group()}
	}
	full := map[onPort]bool{}
	for _, w := range p.wanted {
		if w.LinkLayer == rdma.LinkLayerInfiniBand && w.Mode == rdma.FullMember {
			full[of(w)] = true
		}
	}
	for _, w := range p.wanted {
		w.PortFull = w.Mode != rdma.FullMember && full[of(w)]
	}
}
