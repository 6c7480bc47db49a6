package main

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// place is where a membership is, and what of.
type place struct{ node, netns, iface, address string }

func (p place) String() string {
	return fmt.Sprintf("%s on %s, interface %s, namespace %q", p.address, p.node, p.iface, p.netns)
}

// claim is a membership that the API tells of as joined.
type claim struct {
	mgid netip.Addr
	mlid uint16 // 0: it isn't told, or on RoCE
}

// agree says in what the API and the fabric differ: each membership that a pod
// was told of as joined, or that a node has by itself, is in its node's tables and
// in the network's, and the other way round; each group that a machine is a member
// of has an entry in the MulticastNode, and the other way round.
func (v *view) agree() error {
	claims := v.claims()
	return cmp.Or(v.kernelsAgree(claims), v.switchAgrees(), v.subnetAgrees(claims), v.entriesAgree(claims))
}

// claims are the memberships that the API tells of as joined: those of pods by
// their group-status, those of nodes by their entry, which counts both.
func (v *view) claims() map[place]claim {
	claims := map[place]claim{}
	pods := map[[2]string]int32{}
	for _, t := range v.told {
		if t.status.State != v1alpha1.StateJoined {
			continue
		}
		p := place{t.pod.Spec.NodeName, t.netns, t.status.Interface, v.address(t.status.Group).String()}
		claims[p] = claim{mgid: mgid(t.status), mlid: uint16(t.status.MLID)}
		pods[[2]string{p.node, t.status.Group}]++
	}
	for _, n := range v.nodes {
		for _, entry := range n.Status.Groups {
			group := entry.Namespace + "/" + entry.Name
			if v.groups[group].Spec.Nodes != nil && entry.Joined > pods[[2]string{n.Name, group}] {
				p := place{n.Name, "", v.interfaces[n.Name], v.address(group).String()}
				claims[p] = claim{mgid: v.address(group)} // verbatim, in this demo
			}
		}
	}
	return claims
}

// kernelsAgree compares with the machines' own tables.
func (v *view) kernelsAgree(claims map[place]claim) error {
	held := map[place]bool{}
	for _, h := range v.held {
		p := place{h.node.Name, h.NetNS, h.Interface, h.Group.String()}
		held[p] = true
		if _, ok := claims[p]; !ok {
			return fmt.Errorf("the fabric has a member of %s, that the API doesn't tell of", p)
		}
		if !h.SendOnly && !h.node.InfiniBand && h.node.Machine.IGMP(h.NetNS, h.Interface)[h.Group] < 1 {
			return fmt.Errorf("rdma_cm on %s has a member of %s, its interface %s has not", p.node, p.address, p.iface)
		}
	}
	for p := range claims {
		if !held[p] {
			return fmt.Errorf("the API tells of a member of %s, the fabric doesn't have it", p)
		}
	}
	return nil
}

// switchAgrees compares the Ethernet switch's table with the machines'.
func (v *view) switchAgrees() error {
	members := map[string]bool{}
	for _, h := range v.held {
		if !h.SendOnly && !h.node.InfiniBand {
			members[h.node.Name+" "+h.Group.String()] = true
		}
	}
	for address, ports := range v.mdb {
		for _, port := range ports {
			if !members[port.Node+" "+address.String()] {
				return fmt.Errorf("the switch delivers %s to %s, which has no member", address, port.Node)
			}
			delete(members, port.Node+" "+address.String())
		}
	}
	for missing := range members {
		return fmt.Errorf("the switch doesn't deliver to a member: %s", missing)
	}
	return nil
}

// subnetAgrees compares the subnet manager's table with what pods were told.
func (v *view) subnetAgrees(claims map[place]claim) error {
	members := map[string]bool{}
	for _, h := range v.held {
		if !h.node.InfiniBand {
			continue
		}
		c := claims[place{h.node.Name, h.NetNS, h.Interface, h.Group.String()}]
		if group := v.subnet[c.mgid]; c.mlid != 0 && c.mlid != group.MLID {
			return fmt.Errorf("a pod on %s was told MLID %#x of %s, the subnet manager has %#x", h.node.Name, c.mlid, c.mgid, group.MLID)
		}
		members[h.node.Name+" "+c.mgid.String()] = true
	}
	for mgid, group := range v.subnet {
		for _, m := range group.Members {
			if !members[m.Node+" "+mgid.String()] {
				return fmt.Errorf("the subnet manager has %s as a member of %s, which has none", m.Node, mgid)
			}
			delete(members, m.Node+" "+mgid.String())
		}
	}
	for missing := range members {
		return fmt.Errorf("the subnet manager doesn't have a member: %s", missing)
	}
	return nil
}

// entriesAgree compares the entries of the MulticastNodes with the memberships.
// An entry of a node that refuses has none.
func (v *view) entriesAgree(claims map[place]claim) error {
	wanted := map[[2]string]bool{}
	for p := range claims {
		wanted[[2]string{p.node, p.address}] = true
	}
	for _, n := range v.nodes {
		for _, entry := range n.Status.Groups {
			name := entry.Namespace + "/" + entry.Name
			key := [2]string{n.Name, v.address(name).String()}
			if !wanted[key] && entry.Failing < entry.Members {
				return fmt.Errorf("the MulticastNode %s has an entry for %s, and nothing there has joined it", n.Name, name)
			}
			delete(wanted, key)
		}
	}
	for missing := range wanted {
		return fmt.Errorf("%s is a member of %s, and its MulticastNode has no entry for it", missing[0], missing[1])
	}
	return nil
}
