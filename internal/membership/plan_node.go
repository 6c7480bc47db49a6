package membership

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// node claims what the node is to be a member of by itself.
func (p *planner) node(groups []Group, node Node) {
	members := make([]*Group, 0, len(groups))
	for i := range groups {
		// What isn't accepted, or is being deleted, the group itself says.
		if g := &groups[i]; g.Nodes != nil && g.Accepted && !g.Deleting && g.Nodes.selects(node) {
			members = append(members, g)
		}
	}
	slices.SortFunc(members, func(a, b *Group) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	by := claimant{holder: NodeHolder, held: map[Key]bool{}}
	for _, group := range members {
		found, no := p.nodeInterfaces(group)
		if no != nil {
			p.nodeVerdict(group, "", no)
		}
		for _, iface := range found {
			if no := p.claim(&by, group, group.Mode, place{scope: NodeScope}, iface); no != nil {
				p.nodeVerdict(group, iface.Name, no)
			}
		}
	}
}

func (m *NodeMembers) selects(node Node) bool {
	for key, value := range m.Labels {
		if have, ok := node.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// nodeInterfaces are the node's own that a group selects. Without labels a
// group means every node that has one: having none is no failure then.
func (p *planner) nodeInterfaces(group *Group) ([]rdma.Interface, *refusal) {
	own := p.interfaces[NodeScope]
	if own.Err != nil {
		return nil, wait(ReasonInterfacesUnknown, "can't list the node's RDMA interfaces: %v", own.Err)
	}
	found, all := group.Selector.among(own.RDMA)
	switch {
	case len(found) > 0 || len(group.Nodes.Labels) == 0:
		return found, nil
	case len(all) > 0:
		return nil, refuse(ReasonNotSelected, "the group's interfaceSelector selects none of the node's RDMA interfaces %s", strings.Join(all, ", "))
	}
	return nil, refuse(ReasonNoRDMAInterface, "the node has no RDMA interface")
}

func (p *planner) nodeVerdict(group *Group, iface string, no *refusal) {
	p.verdicts = append(p.verdicts, Verdict{
		Holder: NodeHolder, GroupNamespace: group.Namespace, GroupName: group.Name, GroupUID: group.UID, Interface: iface,
		State: no.state, Reason: no.reason, Message: no.message,
	})
}
