package controllers

import (
	"net/netip"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// fabricAddress is where a group's packets go on one kind of fabric. Two groups
// with one of these in common are one group to the fabric.
type fabricAddress struct {
	linkLayer v1alpha1.LinkLayer
	mgid      netip.Addr
}

// String is the form that the cache is indexed by.
func (a fabricAddress) String() string { return string(a.linkLayer) + "/" + a.mgid.String() }

// fabricAddresses maps a group's address to what the kernel joins, on each link
// layer that the group may be joined on. An address that the API server
// wouldn't have taken has none.
func fabricAddresses(spec *v1alpha1.MulticastGroupSpec, space v1alpha1.PortSpace) []fabricAddress {
	address, err := netip.ParseAddr(spec.Address)
	if err != nil || !address.IsMulticast() {
		return nil
	}
	var mapped []fabricAddress
	for _, layer := range linkLayers(spec) {
		mgid := netip.AddrFrom16(address.As16()) // RoCE v2, rdma_ip2gid: ::ffff:239.1.1.7
		if layer == v1alpha1.LinkLayerInfiniBand {
			mgid = infiniBandMGID(address, space)
		}
		mapped = append(mapped, fabricAddress{layer, mgid})
	}
	return mapped
}

// linkLayers that the group may be joined on.
func linkLayers(spec *v1alpha1.MulticastGroupSpec) []v1alpha1.LinkLayer {
	if spec.InterfaceSelector == nil || len(spec.InterfaceSelector.LinkLayers) == 0 {
		return []v1alpha1.LinkLayer{v1alpha1.LinkLayerEthernet, v1alpha1.LinkLayerInfiniBand}
	}
	return spec.InterfaceSelector.LinkLayers
}

// infiniBandMGID is what rdma_cm maps an address to on an IPoIB interface
// (ip_ib_mc_map, ipv6_ib_mc_map and cma_set_mgid in the kernel). Scope and P_Key
// are the interface's and the same for every group on it: 2 and ffff here, which
// is enough to compare by.
func infiniBandMGID(address netip.Addr, space v1alpha1.PortSpace) netip.Addr {
	const flagsAndScope, pkeyHigh, pkeyLow = 0x12, 0xff, 0xff
	from := address.As16()
	mgid := [16]byte{0: 0xff, 1: flagsAndScope, 4: pkeyHigh, 5: pkeyLow}
	signature := byte(0x40) // 401b: IPv4
	if address.Is4() {
		copy(mgid[12:], from[12:])
		mgid[12] &= 0x0f // the low 28 bits
	} else {
		if from[0] == 0xff && from[1]&0xf0 == 0x10 && from[2] == 0xa0 && from[3] == 0x1b {
			return address // signature a01b: taken verbatim
		}
		copy(mgid[6:], from[6:]) // the low 80 bits
		signature = 0x60         // 601b: IPv6
	}
	mgid[2], mgid[3] = signature, 0x1b
	if space != v1alpha1.PortSpaceIPoIB {
		mgid[3] = 0x01
	}
	return netip.AddrFrom16(mgid)
}

// addressKeys are the values that the cache is indexed by. Groups without a
// value in common can't conflict; port spaces are left out, since whether they
// matter depends on both groups.
func addressKeys(spec *v1alpha1.MulticastGroupSpec) []string {
	var keys []string
	for _, a := range fabricAddresses(spec, v1alpha1.PortSpaceUDP) {
		keys = append(keys, a.String())
	}
	return keys
}

// sameFabricAddress tells whether two groups would be one group to the fabric.
// The port spaces of InfiniBand have MGIDs of their own, on RoCE they are one;
// so they only count where neither group can be on RoCE.
func sameFabricAddress(a, b *v1alpha1.MulticastGroupSpec) bool {
	spaceOfA, spaceOfB := a.PortSpace, b.PortSpace
	if !infiniBandAlone(a) || !infiniBandAlone(b) {
		spaceOfA, spaceOfB = v1alpha1.PortSpaceUDP, v1alpha1.PortSpaceUDP
	}
	ofB := fabricAddresses(b, spaceOfB)
	return slices.ContainsFunc(fabricAddresses(a, spaceOfA), func(address fabricAddress) bool {
		return slices.Contains(ofB, address)
	})
}

func infiniBandAlone(spec *v1alpha1.MulticastGroupSpec) bool {
	return !slices.Contains(linkLayers(spec), v1alpha1.LinkLayerEthernet)
}
