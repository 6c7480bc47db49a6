package controllers

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// anyPKey and anyScope stand for those of a port's broadcast group, which are
// the same for every group that is mapped on it: enough to compare by.
const (
	anyPKey  = 0xffff
	anyScope = 2
)

// groupAddress is what the group's owner wrote: the address or the MGID.
func groupAddress(spec *v1alpha1.MulticastGroupSpec) string { return cmp.Or(spec.Address, spec.MGID) }

// linkLayers that the group may be joined on.
func linkLayers(spec *v1alpha1.MulticastGroupSpec) []v1alpha1.LinkLayer {
	switch {
	case spec.MGID != "":
		return []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand}
	case spec.InterfaceSelector == nil || len(spec.InterfaceSelector.LinkLayers) == 0:
		return []v1alpha1.LinkLayer{v1alpha1.LinkLayerEthernet, v1alpha1.LinkLayerInfiniBand}
	}
	return spec.InterfaceSelector.LinkLayers
}

func infiniBandAlone(spec *v1alpha1.MulticastGroupSpec) bool {
	return !slices.Contains(linkLayers(spec), v1alpha1.LinkLayerEthernet)
}

// fabricAddress is where a group's packets go on one kind of fabric. Two groups
// with one of these in common are one group to the fabric.
type fabricAddress struct {
	linkLayer v1alpha1.LinkLayer
	mgid      netip.Addr
}

// String is the form that the cache is indexed by.
func (a fabricAddress) String() string { return string(a.linkLayer) + "/" + a.mgid.String() }

// fabricAddresses maps a group's address to what the kernel joins, on each link
// layer that the group may be joined on. What the API server wouldn't have
// taken has none.
func fabricAddresses(spec *v1alpha1.MulticastGroupSpec, space v1alpha1.PortSpace) []fabricAddress {
	if spec.MGID != "" {
		mgid, err := netip.ParseAddr(spec.MGID)
		if err != nil || spec.Address != "" || !mgid.Is6() || mgid.Is4In6() || mgid.Zone() != "" || !mgid.IsMulticast() {
			return nil
		}
		return []fabricAddress{{v1alpha1.LinkLayerInfiniBand, mgid}}
	}
	address, err := netip.ParseAddr(spec.Address)
	if err != nil {
		return nil
	}
	onInfiniBand, ok := rdma.MapMGID(address, portSpace(space), anyPKey, anyScope)
	if !ok {
		return nil
	}
	var mapped []fabricAddress
	for _, layer := range linkLayers(spec) {
		mgid := netip.AddrFrom16(address.As16()) // RoCE v2, rdma_ip2gid: ::ffff:239.1.1.7
		if layer == v1alpha1.LinkLayerInfiniBand {
			mgid = onInfiniBand
		}
		mapped = append(mapped, fabricAddress{layer, mgid})
	}
	return mapped
}

func portSpace(space v1alpha1.PortSpace) rdma.PortSpace {
	if space == v1alpha1.PortSpaceIPoIB {
		return rdma.PortSpaceIPoIB
	}
	return rdma.PortSpaceUDP
}

// mappedForm is what MapMGID gives to an address with anyPKey and anyScope, for
// an MGID that it may give to that address with others; false where there is no
// such address.
func mappedForm(mgid netip.Addr) (netip.Addr, bool) {
	m := mgid.As16()
	signed := (m[2] == 0x40 || m[2] == 0x60) && (m[3] == 0x1b || m[3] == 0x01)
	if m[1]&0xf0 != 0x10 || !signed {
		return mgid, false
	}
	m[1] = 0x10 | anyScope
	m[4], m[5] = anyPKey>>8, anyPKey&0xff
	return netip.AddrFrom16(m), true
}

// addressKeys are the values that the cache is indexed by. Groups without a
// value in common can't conflict; port spaces are left out, since whether they
// matter depends on both groups.
func addressKeys(spec *v1alpha1.MulticastGroupSpec) []string {
	var keys []string
	for _, a := range fabricAddresses(spec, v1alpha1.PortSpaceUDP) {
		if a.linkLayer == v1alpha1.LinkLayerInfiniBand {
			if mapped, ok := mappedForm(a.mgid); ok {
				m := mapped.As16()
				m[3] = 0x01 // port space UDP's
				a.mgid = netip.AddrFrom16(m)
			}
		}
		keys = append(keys, a.String())
	}
	return keys
}

// sameFabricAddress tells whether two groups would be one group to the fabric.
// The port spaces of InfiniBand have MGIDs of their own, on RoCE they are one;
// so they only count where neither group can be on RoCE. A verbatim MGID is that
// of an address as soon as a port may map the one to the other.
func sameFabricAddress(a, b *v1alpha1.MulticastGroupSpec) bool {
	if (a.MGID == "") != (b.MGID == "") {
		return mapsTo(a, b) || mapsTo(b, a)
	}
	spaceOfA, spaceOfB := a.PortSpace, b.PortSpace
	if !infiniBandAlone(a) || !infiniBandAlone(b) {
		spaceOfA, spaceOfB = v1alpha1.PortSpaceUDP, v1alpha1.PortSpaceUDP
	}
	return shareAddress(fabricAddresses(a, spaceOfA), fabricAddresses(b, spaceOfB))
}

// mapsTo tells whether a port may map the address of one group to the verbatim
// MGID of another.
func mapsTo(byAddress, byMGID *v1alpha1.MulticastGroupSpec) bool {
	if byAddress.MGID != "" {
		return false
	}
	verbatim := fabricAddresses(byMGID, byMGID.PortSpace)
	for i := range verbatim {
		verbatim[i].mgid, _ = mappedForm(verbatim[i].mgid)
	}
	return shareAddress(fabricAddresses(byAddress, byAddress.PortSpace), verbatim)
}

func shareAddress(ofA, ofB []fabricAddress) bool {
	return slices.ContainsFunc(ofA, func(address fabricAddress) bool { return slices.Contains(ofB, address) })
}
