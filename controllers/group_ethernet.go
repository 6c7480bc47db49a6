package controllers

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// ethernetAddress is the Ethernet address that a group's packets have on RoCE:
// 01:00:5e and the low 23 bits of the IPv4 address (RFC 1112, 6.4), so that 32
// groups share each. Only IPv4 groups have one: rdma_cm has no IPv6 on RoCE v2.
func ethernetAddress(spec *v1alpha1.MulticastGroupSpec) (mac string, ok bool) {
	address, err := netip.ParseAddr(spec.Address)
	if err != nil || spec.MGID != "" || infiniBandAlone(spec) || !address.Is4() || !address.IsMulticast() {
		return "", false
	}
	a := address.As4()
	return fmt.Sprintf("01:00:5e:%02x:%02x:%02x", a[1]&0x7f, a[2], a[3]), true
}

// sharers of g's Ethernet address: the groups in force, or whose nodes may still
// be members while they are deleted, that aren't g's rivals for the address
// itself. others may include g and groups with other addresses.
func sharers(g *v1alpha1.MulticastGroup, others []v1alpha1.MulticastGroup) []string {
	mac, ok := ethernetAddress(&g.Spec)
	if !ok {
		return nil
	}
	var names []string
	for i := range others {
		o := &others[i]
		of, ok := ethernetAddress(&o.Spec)
		if !ok || of != mac || o.UID == g.UID || o.Spec.Address == g.Spec.Address {
			continue
		}
		if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionAccepted) {
			names = append(names, fmt.Sprintf("%s/%s (%s)", o.Namespace, o.Name, o.Spec.Address))
		}
	}
	slices.Sort(names)
	return names
}

// ethernetUniqueness is the condition EthernetAddressUnique of a group in force,
// given who shares its Ethernet address.
func ethernetUniqueness(g *v1alpha1.MulticastGroup, sharers []string) metav1.Condition {
	c := metav1.Condition{
		Type:               v1alpha1.ConditionEthernetAddressUnique,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonNotOnEthernet,
		Message:            "it has no Ethernet address",
		ObservedGeneration: g.Generation,
	}
	mac, ok := ethernetAddress(&g.Spec)
	switch {
	case !ok:
	case len(sharers) == 0:
		c.Reason, c.Message = v1alpha1.ReasonNotShared, "no other group has Ethernet address "+mac
	default:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonEthernetAddressShared
		c.Message = fmt.Sprintf("Ethernet address %s is also that of %s: where they are on one Ethernet, switches and NICs may deliver both to members of either. Addresses that differ in their low 23 bits don't share",
			mac, enumerate(sharers))
	}
	return c
}
