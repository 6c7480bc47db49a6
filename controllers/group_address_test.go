package controllers

import (
	"net/netip"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// The values are computed from the kernel's ip_ib_mc_map, ipv6_ib_mc_map and
// cma_set_mgid.
func TestInfiniBandMGID(t *testing.T) {
	for _, tc := range []struct {
		address string
		space   v1alpha1.PortSpace
		want    string
	}{
		{"239.1.2.3", v1alpha1.PortSpaceIPoIB, "ff12:401b:ffff::f01:203"},
		{"239.1.2.3", v1alpha1.PortSpaceUDP, "ff12:4001:ffff::f01:203"},
		{"239.255.255.250", v1alpha1.PortSpaceUDP, "ff12:4001:ffff::fff:fffa"},
		{"ff0e::1234", v1alpha1.PortSpaceIPoIB, "ff12:601b:ffff::1234"},
		{"ff0e::1234", v1alpha1.PortSpaceUDP, "ff12:6001:ffff::1234"},
		{"ff0e:1:2:3:4:5:6:7", v1alpha1.PortSpaceUDP, "ff12:6001:ffff:3:4:5:6:7"},
		{"ff12:a01b:fe80::1", v1alpha1.PortSpaceUDP, "ff12:a01b:fe80::1"},
		{"ff12:a01b:fe80::1", v1alpha1.PortSpaceIPoIB, "ff12:a01b:fe80::1"},
		{"ff12:401b:ffff::1", v1alpha1.PortSpaceIPoIB, "ff12:601b:ffff::1"},
	} {
		if got := infiniBandMGID(netip.MustParseAddr(tc.address), tc.space); got != netip.MustParseAddr(tc.want) {
			t.Errorf("infiniBandMGID(%s, %s) = %v, want %s", tc.address, tc.space, got, tc.want)
		}
	}
}

func TestSameFabricAddress(t *testing.T) {
	const udp, ipoib = v1alpha1.PortSpaceUDP, v1alpha1.PortSpaceIPoIB
	eth := []v1alpha1.LinkLayer{v1alpha1.LinkLayerEthernet}
	ib := []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand}
	both := []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand, v1alpha1.LinkLayerEthernet}
	spec := func(address string, space v1alpha1.PortSpace, layers []v1alpha1.LinkLayer) v1alpha1.MulticastGroupSpec {
		s := v1alpha1.MulticastGroupSpec{Address: address, PortSpace: space}
		if layers != nil {
			s.InterfaceSelector = &v1alpha1.InterfaceSelector{LinkLayers: layers}
		}
		return s
	}
	for name, tc := range map[string]struct {
		a, b v1alpha1.MulticastGroupSpec
		want bool
	}{
		"the same":                           {spec("239.1.1.7", udp, nil), spec("239.1.1.7", udp, nil), true},
		"another address":                    {spec("239.1.1.7", udp, nil), spec("239.1.1.8", udp, nil), false},
		"spaces are one on RoCE":             {spec("239.1.1.7", udp, eth), spec("239.1.1.7", ipoib, eth), true},
		"spaces, any link layer":             {spec("239.1.1.7", udp, nil), spec("239.1.1.7", ipoib, nil), true},
		"spaces, one on InfiniBand alone":    {spec("239.1.1.7", udp, ib), spec("239.1.1.7", ipoib, nil), true},
		"spaces, both on InfiniBand alone":   {spec("239.1.1.7", udp, ib), spec("239.1.1.7", ipoib, ib), false},
		"one space on InfiniBand alone":      {spec("239.1.1.7", ipoib, ib), spec("239.1.1.7", ipoib, ib), true},
		"link layers apart":                  {spec("239.1.1.7", udp, eth), spec("239.1.1.7", udp, ib), false},
		"both layers named":                  {spec("239.1.1.7", udp, both), spec("239.1.1.7", udp, eth), true},
		"low 28 bits are the whole of IPv4":  {spec("224.1.1.7", udp, ib), spec("239.1.1.7", udp, ib), false},
		"IPv6, low 80 bits on InfiniBand":    {spec("ff15::7", udp, nil), spec("ff0e::7", udp, ib), true},
		"IPv6, low 80 bits on RoCE":          {spec("ff15::7", udp, eth), spec("ff0e::7", udp, eth), false},
		"IPv6 verbatim, two":                 {spec("ff12:a01b:fe80::1", udp, ib), spec("ff15:a01b:fe80::1", udp, ib), false},
		"IPv6 verbatim, spaces are one":      {spec("ff15:a01b:fe80::1", udp, ib), spec("ff15:a01b:fe80::1", ipoib, ib), true},
		"IPv6 isn't the IPv4 that it embeds": {spec("ff0e::ef01:107", udp, nil), spec("239.1.1.7", udp, nil), false},
		"no address":                         {spec("nonsense", udp, nil), spec("nonsense", udp, nil), false},
		"unicast":                            {spec("10.0.0.1", udp, nil), spec("10.0.0.1", udp, nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sameFabricAddress(&tc.a, &tc.b); got != tc.want {
				t.Errorf("sameFabricAddress(a, b) = %t, want %t", got, tc.want)
			}
			if got := sameFabricAddress(&tc.b, &tc.a); got != tc.want {
				t.Errorf("sameFabricAddress(b, a) = %t, want %t", got, tc.want)
			}
			if tc.want && !shareKey(&tc.a, &tc.b) {
				t.Errorf("the index finds neither by the other: %v and %v", addressKeys(&tc.a), addressKeys(&tc.b))
			}
		})
	}
}

func shareKey(a, b *v1alpha1.MulticastGroupSpec) bool {
	for _, k := range addressKeys(a) {
		for _, l := range addressKeys(b) {
			if k == l {
				return true
			}
		}
	}
	return false
}

// Whatever is in a spec, mapping doesn't fail, and what conflicts is found by
// the index, from either side.
func FuzzSameFabricAddress(f *testing.F) {
	f.Add("239.1.1.7", "UDP", byte(0), "239.1.1.7", "IPoIB", byte(1))
	f.Add("ff12:a01b:fe80::1", "IPoIB", byte(2), "ff12:601b::1", "UDP", byte(3))
	f.Add("::ffff:239.1.1.7", "UDP", byte(0), "ff15::7%eth0", "", byte(9))
	layers := [][]v1alpha1.LinkLayer{nil, {v1alpha1.LinkLayerEthernet}, {v1alpha1.LinkLayerInfiniBand}, {v1alpha1.LinkLayerInfiniBand, v1alpha1.LinkLayerEthernet}}
	f.Fuzz(func(t *testing.T, addressA, spaceA string, layersA byte, addressB, spaceB string, layersB byte) {
		spec := func(address, space string, l byte) *v1alpha1.MulticastGroupSpec {
			return &v1alpha1.MulticastGroupSpec{
				Address: address, PortSpace: v1alpha1.PortSpace(space),
				InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: layers[int(l)%len(layers)]},
			}
		}
		a, b := spec(addressA, spaceA, layersA), spec(addressB, spaceB, layersB)
		same := sameFabricAddress(a, b)
		if same != sameFabricAddress(b, a) {
			t.Errorf("not symmetric: %+v, %+v", a, b)
		}
		if same && !shareKey(a, b) {
			t.Errorf("not found by the index: %+v, %+v", a, b)
		}
		if mapped := fabricAddresses(a, a.PortSpace); len(mapped) > 0 && !sameFabricAddress(a, a) {
			t.Errorf("doesn't conflict with itself: %+v", a)
		}
	})
}
