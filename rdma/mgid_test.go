package rdma

import (
	"net/netip"
	"testing"
)

func TestMapMGID(t *testing.T) {
	for _, c := range []struct {
		group string
		ps    PortSpace
		pkey  uint16
		scope uint8
		want  string
	}{
		{"239.1.2.3", PortSpaceIPoIB, 0xffff, 2, "ff12:401b:ffff::f01:203"},
		{"239.1.2.3", PortSpaceUDP, 0xffff, 2, "ff12:4001:ffff::f01:203"},
		{"239.255.255.250", PortSpaceUDP, 0xffff, 2, "ff12:4001:ffff::fff:fffa"},
		{"239.1.2.3", PortSpaceIPoIB, 0x8001, 5, "ff15:401b:8001::f01:203"},
		{"239.1.2.3", PortSpaceUDP, 0x8001, 5, "ff15:4001:8001::f01:203"},
		{"ff0e::1234", PortSpaceIPoIB, 0xffff, 2, "ff12:601b:ffff::1234"},
		{"ff0e::1234", PortSpaceUDP, 0xffff, 2, "ff12:6001:ffff::1234"},
		{"ff0e:1:2:3:4:5:6:7", PortSpaceUDP, 0xffff, 2, "ff12:6001:ffff:3:4:5:6:7"},
		{"ff12:a01b:fe80::1", PortSpaceUDP, 0xffff, 2, "ff12:a01b:fe80::1"},
		{"ff15:a01b:fe80::1", PortSpaceIPoIB, 0x8001, 5, "ff15:a01b:fe80::1"},
		{"ff12:401b:ffff::1", PortSpaceIPoIB, 0xffff, 2, "ff12:601b:ffff::1"},
	} {
		got, ok := MapMGID(netip.MustParseAddr(c.group), c.ps, c.pkey, c.scope)
		if want := netip.MustParseAddr(c.want); !ok || got != want {
			t.Errorf("MapMGID(%s, %#x, %#x, %d) = %v, %v; want %v", c.group, c.ps, c.pkey, c.scope, got, ok, want)
		}
	}
	for _, group := range []string{"10.0.0.1", "fe80::1", "::ffff:239.1.2.3"} {
		if got, ok := MapMGID(netip.MustParseAddr(group), PortSpaceUDP, 0xffff, 2); ok {
			t.Errorf("MapMGID(%s) = %v, want none", group, got)
		}
	}
}
