package sys

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// A pipe stands for the device, which shows what is written to it and answers
// nothing. The bytes are those of a little-endian machine; pointers are masked.
func TestCommandBytes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Fatal("the bytes below are a little-endian machine's")
	}
	const response = "----------------"
	zeros := func(n int) string { return strings.Repeat("00", n) }
	mgid := netip.MustParseAddr("ff15:a01b:fe80::7")
	for _, tt := range []struct {
		name    string
		command func(*cm) error
		pointer int // where the response pointer is, 0 none
		want    []string
	}{
		{
			"create an id", func(c *cm) error { _, err := c.CreateID(nil, 0x1234, PortSpaceUDP); return err }, 16,
			[]string{"00000000", "1800", "0400", "3412000000000000", response, "1101", "04", zeros(5)},
		},
		{
			"bind", func(c *cm) error { return c.Bind(3, netip.MustParseAddr("10.0.0.2")) }, 0,
			[]string{"14000000", "8800", "0000", "03000000", "1000", "0000", "0200", "0000", "0a000002", zeros(120)},
		},
		{
			"query", func(c *cm) error { _, err := c.QueryAddr(3); return err }, 8,
			[]string{"13000000", "1000", "1801", response, "03000000", "00000000"},
		},
		{
			"join an IPv4 group", func(c *cm) error {
				_, err := c.Join(3, 0x55, netip.MustParseAddr("239.1.1.7"), JoinFullMember)
				return err
			}, 8,
			[]string{"16000000", "9800", "0400", response, "5500000000000000", "03000000", "1000", "0000", "0200", "0000", "ef010107", zeros(120)},
		},
		{
			"join an IPv6 group", func(c *cm) error {
				_, err := c.Join(3, 0x55, netip.MustParseAddr("ff0e::1234"), JoinFullMember)
				return err
			}, 8,
			[]string{"16000000", "9800", "0400", response, "5500000000000000", "03000000", "1c00", "0000", "0a00", "0000", "00000000", "ff0e0000000000000000000000001234", zeros(104)},
		},
		{
			// sockaddr_ib: family, P_Key, flow information, GID, service id and
			// its mask, scope.
			"join an MGID", func(c *cm) error { _, err := c.JoinMGID(3, 0x55, mgid, JoinSendOnlyFullMember); return err }, 8,
			[]string{"16000000", "9800", "0400", response, "5500000000000000", "03000000", "3000", "0100", "1b00", "0000", "00000000", "ff15a01bfe8000000000000000000007", zeros(8), zeros(8), zeros(8), zeros(80)},
		},
		{
			"leave", func(c *cm) error { _, err := c.Leave(9); return err }, 8,
			[]string{"11000000", "1000", "0400", response, "09000000", "00000000"},
		},
		{
			"destroy an id", func(c *cm) error { _, err := c.Destroy(3); return err }, 8,
			[]string{"01000000", "1000", "0400", response, "03000000", "00000000"},
		},
		{
			"take an event", func(c *cm) error { _, err := c.GetEvent(); return err }, 8,
			[]string{"0c000000", "0800", "5001", response},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := written(t, tt.command)
			if tt.pointer != 0 {
				if binary.LittleEndian.Uint64(got[tt.pointer:]) == 0 {
					t.Error("no response pointer")
				}
			}
			text := hex.EncodeToString(got)
			if tt.pointer != 0 {
				text = text[:2*tt.pointer] + response + text[2*tt.pointer+16:]
			}
			if diff := cmp.Diff(strings.Join(tt.want, ""), text); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
		})
	}
}

// written is what a command writes.
func written(t *testing.T, command func(*cm) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rdma_cm")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openCM(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := command(c); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := other.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{other, c.file} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b[:n]
}

// What can't be laid out in a sockaddr never gets to the kernel.
func TestJoinRefusesWhatHasNoSockaddr(t *testing.T) {
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("ff12::1%eth0")} {
		if _, err := (&cm{}).Join(1, 1, addr, 0); err != syscall.EINVAL {
			t.Errorf("join %v: got error %v, want EINVAL", addr, err)
		}
	}
	for _, mgid := range []netip.Addr{{}, netip.MustParseAddr("ff12::1%eth0"), netip.MustParseAddr("239.1.1.7")} {
		if _, err := (&cm{}).JoinMGID(1, 1, mgid, 0); err != syscall.EINVAL {
			t.Errorf("join MGID %v: got error %v, want EINVAL", mgid, err)
		}
	}
}

// The kernel copies its struct, whatever the size in the header: a command's
// buffer is exactly as long as header and payload say.
func TestRequestsHaveNoPadding(t *testing.T) {
	for name, size := range map[string][2]uintptr{
		"create_id":  {unsafe.Sizeof(request[createID]{}), unsafe.Sizeof(createID{})},
		"destroy_id": {unsafe.Sizeof(request[destroyID]{}), unsafe.Sizeof(destroyID{})},
		"bind":       {unsafe.Sizeof(request[bind]{}), unsafe.Sizeof(bind{})},
		"query":      {unsafe.Sizeof(request[query]{}), unsafe.Sizeof(query{})},
		"join_mcast": {unsafe.Sizeof(request[joinMulticast]{}), unsafe.Sizeof(joinMulticast{})},
		"get_event":  {unsafe.Sizeof(request[getEvent]{}), unsafe.Sizeof(getEvent{})},
	} {
		if size[0] != size[1]+8 {
			t.Errorf("%s: %d bytes with the header, want %d", name, size[0], size[1]+8)
		}
	}
}
