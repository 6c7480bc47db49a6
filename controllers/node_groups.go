package controllers

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// acceptedGroups turns MulticastGroups into what planning sees. A generation
// that the controller hasn't judged yet leaves the one before it in force: an
// edited group isn't left and joined anew.
type acceptedGroups struct {
	inForce map[types.UID]membership.Group
}

// of converts the groups, all that there are: those not named are forgotten.
func (a *acceptedGroups) of(groups []v1alpha1.MulticastGroup) []membership.Group {
	inForce := make(map[types.UID]membership.Group, len(groups))
	converted := make([]membership.Group, 0, len(groups))
	for i := range groups {
		g := &groups[i]
		c := planningGroup(g)
		judged := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionAccepted)
		if judged == nil || judged.ObservedGeneration < g.Generation {
			if before, ok := a.inForce[g.UID]; ok {
				c = before
				c.Deleting = g.DeletionTimestamp != nil
			}
		}
		if c.Accepted {
			inForce[g.UID] = c
		}
		converted = append(converted, c)
	}
	a.inForce = inForce
	return converted
}

// planningGroup converts one group. What the API server's validation should
// have refused makes it a group that isn't accepted.
func planningGroup(g *v1alpha1.MulticastGroup) membership.Group {
	judged := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionAccepted)
	c := membership.Group{
		UID:        string(g.UID),
		Namespace:  g.Namespace,
		Name:       g.Name,
		Generation: g.Generation,
		PortSpace:  rdma.PortSpaceUDP,
		Mode:       joinMode(g.Spec.Mode),
		Allowed:    g.Spec.AllowedNamespaces,
		Accepted:   judged != nil && judged.Status == metav1.ConditionTrue && judged.ObservedGeneration == g.Generation,
		Deleting:   g.DeletionTimestamp != nil,
	}
	if g.Spec.PortSpace == v1alpha1.PortSpaceIPoIB {
		c.PortSpace = rdma.PortSpaceIPoIB
	}
	address := g.Spec.Address
	if g.Spec.MGID != "" {
		address, c.Verbatim = g.Spec.MGID, true
	}
	addr, err := netip.ParseAddr(address)
	if err != nil || (c.Verbatim && g.Spec.Address != "") {
		c.Accepted = false
	}
	c.Address = addr
	if class := g.Spec.TrafficClass; class != nil {
		c.TrafficClass = uint8(min(max(*class, 0), 255))
	}
	if g.Spec.Nodes != nil {
		c.Nodes = &membership.NodeMembers{Labels: make(map[string]string, len(g.Spec.Nodes.NodeSelector))}
		for key, value := range g.Spec.Nodes.NodeSelector {
			c.Nodes.Labels[key] = string(value)
		}
	}
	if s := g.Spec.InterfaceSelector; s != nil {
		for _, l := range s.LinkLayers {
			c.Selector.LinkLayers = append(c.Selector.LinkLayers, string(l))
		}
		c.Selector.Devices, c.Selector.Interfaces = s.Devices, s.Interfaces
		for _, subnet := range s.Subnets {
			prefix, err := netip.ParsePrefix(subnet)
			if err != nil {
				c.Accepted = false
				continue
			}
			c.Selector.Subnets = append(c.Selector.Subnets, prefix)
		}
	}
	return c
}

func joinMode(m v1alpha1.Mode) rdma.JoinMode {
	if m == v1alpha1.SendOnlyFullMember {
		return rdma.SendOnlyFullMember
	}
	return rdma.FullMember
}
