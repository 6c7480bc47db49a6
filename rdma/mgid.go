package rdma

import (
	"encoding/binary"
	"net/netip"
)

// MapMGID is the MGID that rdma_cm gives to a group address on an InfiniBand
// port, whose IPoIB interface has the P_Key and the scope (4 bits: 2 link-local,
// 5 site-local, 8 organization-local, 14 global) in its broadcast group. ok is false where there is
// none: group isn't a multicast address in canonical form, or the port space isn't one of the
// two that have multicast.
//
// Sources: cma_set_mgid, ip_ib_mc_map, ipv6_ib_mc_map.
func MapMGID(group netip.Addr, ps PortSpace, pkey uint16, scope uint8) (mgid netip.Addr, ok bool) {
	if !group.IsMulticast() || group.Is4In6() || group.Zone() != "" || ps != PortSpaceUDP && ps != PortSpaceIPoIB {
		return netip.Addr{}, false
	}
	if IsVerbatimMGID(group) {
		return group, true
	}
	m := [16]byte{0: 0xff, 1: 0x10 | scope&0xf}
	binary.BigEndian.PutUint16(m[4:], pkey)
	if group.Is4() {
		a := group.As4()
		m[2], m[3] = 0x40, 0x1b
		copy(m[12:], a[:])
		m[12] &= 0x0f
	} else {
		a := group.As16()
		m[2], m[3] = 0x60, 0x1b
		copy(m[6:], a[6:])
	}
	if ps == PortSpaceUDP {
		m[3] = 0x01 // keeps rdma_cm's groups apart from those of sockets
	}
	return netip.AddrFrom16(m), true
}

// IsVerbatimMGID reports whether rdma_cm takes an IPv6 group for its MGID as
// it is: ff1x:a01b::/32 of any scope x. Every other MGID takes JoinMGID.
func IsVerbatimMGID(group netip.Addr) bool {
	if !group.Is6() || group.Is4In6() {
		return false
	}
	a := group.As16()
	return binary.BigEndian.Uint32(a[:])&0xFFF0FFFF == 0xFF10A01B
}
