package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
)

const (
	sizeofSockaddrIn  = 16
	sizeofSockaddrIn6 = 28
	sizeofSockaddrIB  = 48

	afIB = 27
)

// encodeSockaddr lays an address out as a sockaddr_in or sockaddr_in6 without
// port. The size matters: the kernel refuses any but the family's own.
func encodeSockaddr(addr netip.Addr) (sockaddrStorage, uint16, error) {
	var s sockaddrStorage
	switch {
	case addr.Is4():
		binary.NativeEndian.PutUint16(s[:], syscall.AF_INET)
		a := addr.As4()
		copy(s[4:], a[:])
		return s, sizeofSockaddrIn, nil
	case addr.Is6() && addr.Zone() == "":
		binary.NativeEndian.PutUint16(s[:], syscall.AF_INET6)
		a := addr.As16()
		copy(s[8:], a[:])
		return s, sizeofSockaddrIn6, nil
	}
	return s, 0, syscall.EINVAL
}

// encodeSockaddrIB lays an MGID out as a sockaddr_ib of which the kernel's join
// looks at the address alone.
func encodeSockaddrIB(mgid netip.Addr) (sockaddrStorage, uint16, error) {
	var s sockaddrStorage
	if !mgid.Is6() || mgid.Zone() != "" {
		return s, 0, syscall.EINVAL
	}
	binary.NativeEndian.PutUint16(s[:], afIB)
	a := mgid.As16()
	copy(s[8:], a[:])
	return s, sizeofSockaddrIB, nil
}

// decodeSockaddr is the address in a sockaddr that the kernel filled in; the
// zero Addr for a family other than IPv4 and IPv6, or a size too small for it.
func decodeSockaddr(s *sockaddrStorage, size uint16) netip.Addr {
	switch family := binary.NativeEndian.Uint16(s[:]); {
	case family == syscall.AF_INET && size >= sizeofSockaddrIn:
		return netip.AddrFrom4([4]byte(s[4:8]))
	case family == syscall.AF_INET6 && size >= sizeofSockaddrIn6:
		return netip.AddrFrom16([16]byte(s[8:24]))
	}
	return netip.Addr{}
}
