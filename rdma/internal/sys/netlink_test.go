package sys

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// message is a netlink message, padded as the next one's place wants it.
func message(kind uint16, payload ...byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(payload)+3)
	binary.NativeEndian.PutUint32(b, uint32(unix.SizeofNlMsghdr+len(payload)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	b = append(b, payload...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// lengthened is a message that says it is longer than it is.
func lengthened(m []byte, length uint32) []byte {
	binary.NativeEndian.PutUint32(m, length)
	return m
}

func TestHasMessage(t *testing.T) {
	bridge := message(unix.RTM_NEWLINK, unix.AF_BRIDGE, 0, 0)
	for _, tt := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"new link", message(unix.RTM_NEWLINK, unix.AF_UNSPEC), true},
		{"deleted link", message(unix.RTM_DELLINK, unix.AF_UNSPEC), true},
		{"new address", message(unix.RTM_NEWADDR, unix.AF_INET), true},
		{"deleted address", message(unix.RTM_DELADDR, unix.AF_INET6), true},
		{"a bridge's port", bridge, false},
		{"something else", message(unix.RTM_NEWROUTE, unix.AF_INET), false},
		{"the second message", append(bridge, message(unix.RTM_NEWADDR)...), true},
		{"cut off", lengthened(message(unix.RTM_NEWLINK, unix.AF_UNSPEC), 1<<20), true},
		{"cut off within its header", message(unix.RTM_NEWADDR)[:15], false},
		{"without the family", message(unix.RTM_NEWLINK), false},
		{"length too short", lengthened(message(unix.RTM_NEWADDR), 15), false},
		{"largest length", lengthened(message(unix.RTM_NEWROUTE), 1<<32-1), false},
		{"empty", nil, false},
	} {
		if got := hasMessage(tt.b, aboutLinks); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	if !hasMessage(message(rdmaMonitor), aboutRDMA) || hasMessage(message(rdmaMonitor-1), aboutRDMA) {
		t.Error("the RDMA netlink's notification isn't told from its neighbour")
	}
	// What Linux 6.12 sent when rxe9 was made, but for the event's type behind it.
	registered := append(message(0x141c, 8, 0, 1, 0, 2, 0, 0, 0, 9, 0, 2, 0), "rxe9\x00\x00\x00\x00"...)
	if !hasMessage(registered, aboutRDMA) {
		t.Error("a notification of Linux 6.12 isn't known")
	}
}

func FuzzHasMessage(f *testing.F) {
	f.Add(append(message(unix.RTM_NEWLINK, unix.AF_BRIDGE), message(unix.RTM_NEWADDR)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		messages := 0
		hasMessage(b, func(_ uint16, payload []byte) bool {
			messages++
			if len(payload) > len(b)-unix.SizeofNlMsghdr {
				t.Errorf("a payload of %d bytes in %d", len(payload), len(b))
			}
			return false
		})
		if messages > len(b)/unix.SizeofNlMsghdr {
			t.Errorf("%d messages in %d bytes", messages, len(b))
		}
	})
}

// uevent is what the kernel sends when Soft-RoCE makes a device.
func uevent(lines ...string) []byte {
	return []byte(strings.Join(append(lines, ""), "\x00"))
}

func TestSubsystem(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{
			"a new RDMA device",
			uevent("add@/devices/virtual/infiniband/rxe0", "ACTION=add", "DEVPATH=/devices/virtual/infiniband/rxe0", "SUBSYSTEM=infiniband", "NAME=rxe0", "SEQNUM=1204"),
			"infiniband",
		},
		{"a network interface", uevent("remove@/devices/virtual/net/veth0", "ACTION=remove", "SUBSYSTEM=net", "INTERFACE=veth0"), "net"},
		{"not ended by a zero byte", []byte("add@/x\x00SUBSYSTEM=net"), "net"},
		{"the first one counts", uevent("add@/x", "SUBSYSTEM=net", "SUBSYSTEM=infiniband"), "net"},
		{"none", uevent("add@/x", "ACTION=add"), ""},
		{"only as a part of another key", uevent("add@/x", "MYSUBSYSTEM=net"), ""},
		{"in place of the heading", uevent("SUBSYSTEM=net"), ""},
		{"udev's own", uevent("libudev", "SUBSYSTEM=net"), ""},
		{"empty", nil, ""},
	} {
		if got := subsystem(tt.b); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzSubsystem(f *testing.F) {
	f.Add(uevent("add@/devices/virtual/infiniband/rxe0", "ACTION=add", "SUBSYSTEM=infiniband"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := subsystem(b)
		if s == "" {
			return
		}
		if !bytes.Contains(b, []byte("\x00SUBSYSTEM="+s)) || strings.Contains(s, "\x00") {
			t.Errorf("subsystem %q of %q", s, b)
		}
	})
}
