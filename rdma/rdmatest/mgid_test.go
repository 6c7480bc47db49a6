package rdmatest

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// The vectors are computed from ip_ib_mc_map, ipv6_ib_mc_map and cma_set_mgid.
// What a subnet manager takes of them, conformance joins.
func TestMapMGID(t *testing.T) {
	for _, tt := range []struct {
		group string
		ps    uint16
		pkey  uint16
		scope uint8
		want  string
	}{
		{"239.1.2.3", sys.PortSpaceIPoIB, 0xffff, 2, "ff12:401b:ffff::f01:203"},
		{"239.1.2.3", sys.PortSpaceUDP, 0xffff, 2, "ff12:4001:ffff::f01:203"},
		{"239.255.255.250", sys.PortSpaceUDP, 0xffff, 2, "ff12:4001:ffff::fff:fffa"},
		{"239.1.2.3", sys.PortSpaceIPoIB, 0x8001, 5, "ff15:401b:8001::f01:203"},
		{"239.1.2.3", sys.PortSpaceUDP, 0x8001, 5, "ff15:4001:8001::f01:203"},
		{"ff0e::1234", sys.PortSpaceIPoIB, 0xffff, 2, "ff12:601b:ffff::1234"},
		{"ff0e::1234", sys.PortSpaceUDP, 0xffff, 2, "ff12:6001:ffff::1234"},
		{"ff0e:1:2:3:4:5:6:7", sys.PortSpaceUDP, 0xffff, 2, "ff12:6001:ffff:3:4:5:6:7"},
		{"ff12:a01b:fe80::1", sys.PortSpaceIPoIB, 0x8001, 5, "ff12:a01b:fe80::1"},
		{"ff12:a01b:fe80::1", sys.PortSpaceUDP, 0xffff, 2, "ff12:a01b:fe80::1"},
		{"ff12:401b:ffff::1", sys.PortSpaceIPoIB, 0xffff, 2, "ff12:601b:ffff::1"},
	} {
		broadcast := [20]byte{5: 0x10 | tt.scope}
		binary.BigEndian.PutUint16(broadcast[8:], tt.pkey)
		group := netip.MustParseAddr(tt.group)
		if got := mapMGID(groupAddr{addr: group}, tt.ps, broadcast); got != netip.MustParseAddr(tt.want) {
			t.Errorf("%s in port space %#x: got %v, want %s", tt.group, tt.ps, got, tt.want)
		}
		if !group.Is6() {
			continue
		}
		if got := mapMGID(groupAddr{addr: group, verbatim: true}, tt.ps, broadcast); got != group {
			t.Errorf("%s verbatim: got %v", tt.group, got)
		}
	}
}
