package sys

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
)

func TestSockaddr(t *testing.T) {
	for _, tt := range []struct {
		addr string
		size uint16
	}{
		{"239.1.1.7", 16},
		{"10.0.0.1", 16},
		{"ff0e::1234", 28},
		{"::ffff:239.1.1.7", 28},
	} {
		addr := netip.MustParseAddr(tt.addr)
		s, size, err := encodeSockaddr(addr)
		if err != nil || size != tt.size {
			t.Errorf("encodeSockaddr(%v): size %d, error %v, want %d", addr, size, err, tt.size)
		}
		if got := decodeSockaddr(&s, size); got != addr {
			t.Errorf("decodeSockaddr: got %v, want %v", got, addr)
		}
		if got := decodeSockaddr(&s, size-1); got.IsValid() {
			t.Errorf("decodeSockaddr of a size too small for %v: got %v, want none", addr, got)
		}
	}
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0")} {
		if _, _, err := encodeSockaddr(addr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("encodeSockaddr(%v): got error %v, want EINVAL", addr, err)
		}
	}
}

func FuzzDecodeSockaddr(f *testing.F) {
	for _, a := range []string{"239.1.1.7", "ff0e::1234"} {
		s, size, err := encodeSockaddr(netip.MustParseAddr(a))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s[:], size)
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		var s sockaddrStorage
		copy(s[:], data)
		addr := decodeSockaddr(&s, size)
		if !addr.IsValid() {
			return
		}
		again, n, err := encodeSockaddr(addr)
		if err != nil {
			t.Fatalf("encodeSockaddr(%v), an address that was decoded: %v", addr, err)
		}
		if got := decodeSockaddr(&again, n); got != addr {
			t.Fatalf("round trip of %v gave %v", addr, got)
		}
	})
}
