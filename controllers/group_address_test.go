package controllers

import (
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

func TestSameFabricAddress(t *testing.T) {
	const udp, ipoib = v1alpha1.PortSpaceUDP, v1alpha1.PortSpaceIPoIB
	eth := []v1alpha1.LinkLayer{v1alpha1.LinkLayerEthernet}
	ib := []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand}
	both := []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand, v1alpha1.LinkLayerEthernet}
	mgid := func(mgid string, layers ...v1alpha1.LinkLayer) v1alpha1.MulticastGroupSpec {
		return v1alpha1.MulticastGroupSpec{MGID: mgid, PortSpace: udp, InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: layers}}
	}
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
		"MGIDs, the same":                    {mgid("ff15:a01b:fe80::1"), mgid("ff15:a01b:fe80::1"), true},
		"MGIDs, spaces are one":              {mgid("ff15:a01b:fe80::1"), v1alpha1.MulticastGroupSpec{MGID: "ff15:a01b:fe80::1", PortSpace: ipoib}, true},
		"MGIDs, another":                     {mgid("ff15:a01b:fe80::1"), mgid("ff15:a01b:fe80::2"), false},
		"MGIDs, another P_Key":               {mgid("ff12:401b:8001::f01:107"), mgid("ff12:401b:8002::f01:107"), false},
		"MGIDs, another scope":               {mgid("ff12:4001:ffff::f01:107"), mgid("ff15:4001:ffff::f01:107"), false},
		"MGIDs are on InfiniBand alone":      {mgid("ff15:a01b:fe80::1", both...), spec("ff15:a01b:fe80::1", udp, eth), false},
		"MGID and IPv6 verbatim":             {mgid("ff15:a01b:fe80::1"), spec("ff15:a01b:fe80::1", ipoib, nil), true},
		"MGID and IPv6 verbatim, scope":      {mgid("ff15:a01b:fe80::1"), spec("ff18:a01b:fe80::1", udp, nil), false},
		"MGID and what it is mapped from":    {mgid("ff12:4001:ffff::f01:107"), spec("239.1.1.7", udp, nil), true},
		"MGID of any P_Key and scope":        {mgid("ff18:4001:8001::f01:107"), spec("239.1.1.7", udp, ib), true},
		"MGID of the other space":            {mgid("ff12:401b:ffff::f01:107"), spec("239.1.1.7", udp, nil), false},
		"MGID of sockets":                    {mgid("ff12:401b:ffff::f01:107"), spec("239.1.1.7", ipoib, nil), true},
		"MGID of sockets, other space":       {mgid("ff12:4001:ffff::f01:107"), spec("239.1.1.7", ipoib, ib), false},
		"MGID where the address isn't":       {mgid("ff12:4001:ffff::f01:107"), spec("239.1.1.7", udp, eth), false},
		"MGID of an IPv6 address":            {mgid("ff15:6001:8001:3:4:5:6:7"), spec("ff0e:1:2:3:4:5:6:7", udp, nil), true},
		"MGID of an IPv6 address's sockets":  {mgid("ff15:601b:8001::1234"), spec("ff0e::1234", ipoib, nil), true},
		"MGID of no IPv4 address":            {mgid("ff12:4001:ffff::1:f01:107"), spec("239.1.1.7", udp, nil), false},
		"MGID that is the IPv6 address":      {mgid("ff0e::1234"), spec("ff0e::1234", udp, nil), false},
		"MGID that an address looks like":    {mgid("ff12:601b:ffff::1"), spec("ff12:401b:ffff::1", ipoib, nil), true},
		"MGID well-known":                    {mgid("ff02:4001:ffff::f01:107"), spec("239.1.1.7", udp, nil), false},
		"MGID of another signature":          {mgid("ff12:5001:ffff::f01:107"), spec("239.1.1.7", udp, nil), false},
		"MGID that isn't one":                {mgid("239.1.1.7"), mgid("239.1.1.7"), false},
		"both fields":                        {v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", MGID: "ff15::7"}, mgid("ff15::7"), false},
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

// Whatever is in a spec, mapping doesn't fail, what conflicts is found by the
// index, from either side, and a group conflicts with itself.
func FuzzSameFabricAddress(f *testing.F) {
	f.Add("239.1.1.7", "UDP", byte(0), "239.1.1.7", "IPoIB", byte(1))
	f.Add("ff12:a01b:fe80::1", "IPoIB", byte(2), "ff12:601b::1", "UDP", byte(7))
	f.Add("::ffff:239.1.1.7", "UDP", byte(0), "ff15::7%eth0", "", byte(9))
	f.Add("ff15:401b:8001::f01:107", "UDP", byte(4), "239.1.1.7", "IPoIB", byte(2))
	layers := [][]v1alpha1.LinkLayer{nil, {v1alpha1.LinkLayerEthernet}, {v1alpha1.LinkLayerInfiniBand}, {v1alpha1.LinkLayerInfiniBand, v1alpha1.LinkLayerEthernet}}
	f.Fuzz(func(t *testing.T, addressA, spaceA string, kindA byte, addressB, spaceB string, kindB byte) {
		spec := func(address, space string, kind byte) *v1alpha1.MulticastGroupSpec {
			s := &v1alpha1.MulticastGroupSpec{
				Address: address, PortSpace: v1alpha1.PortSpace(space),
				InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: layers[int(kind)%len(layers)]},
			}
			if kind&4 != 0 {
				s.Address, s.MGID = "", address
			}
			return s
		}
		a, b := spec(addressA, spaceA, kindA), spec(addressB, spaceB, kindB)
		same := sameFabricAddress(a, b)
		if same != sameFabricAddress(b, a) {
			t.Errorf("not symmetric: %+v, %+v", a, b)
		}
		if same && !shareKey(a, b) {
			t.Errorf("not found by the index: %+v, %+v", a, b)
		}
		for _, s := range []*v1alpha1.MulticastGroupSpec{a, b} {
			if mapped := fabricAddresses(s, s.PortSpace); len(mapped) > 0 && !sameFabricAddress(s, s) {
				t.Errorf("doesn't conflict with itself: %+v", s)
			}
			if mac, ok := ethernetAddress(s); ok && (len(mac) != len("01:00:5e:01:01:07") || len(fabricAddresses(s, s.PortSpace)) == 0) {
				t.Errorf("Ethernet address %q of %+v", mac, s)
			}
		}
	})
}
