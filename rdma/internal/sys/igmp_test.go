package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// igmpNumber is an address as /proc/net/igmp prints it on this machine.
func igmpNumber(addr string) string {
	a := netip.MustParseAddr(addr).As4()
	return fmt.Sprintf("%08X", binary.NativeEndian.Uint32(a[:]))
}

// igmpText is the table of a machine with two interfaces, one of a name that
// leaves no space before the colon.
func igmpText() string {
	line := "\t\t\t\t%s %5d 0:00000000\t\t%d\n"
	return "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n" +
		"1\tlo        :     1      V3\n" + fmt.Sprintf(line, igmpNumber("224.0.0.1"), 1, 0) +
		"2\teth0      :     3      V3\n" + fmt.Sprintf(line, igmpNumber("239.1.2.3"), 2, 1) +
		fmt.Sprintf(line, igmpNumber("239.1.1.7"), 1, 1) + fmt.Sprintf(line, igmpNumber("224.0.0.1"), 1, 0) +
		"12\tenp3s0f0np0v15:     1      V2\n" + fmt.Sprintf(line, igmpNumber("224.0.0.1"), 3, 0)
}

func TestParseIGMP(t *testing.T) {
	groups := func(pairs ...any) map[netip.Addr]int {
		m := map[netip.Addr]int{}
		for i := 0; i < len(pairs); i += 2 {
			m[netip.MustParseAddr(pairs[i].(string))] = pairs[i+1].(int)
		}
		return m
	}
	for _, tt := range []struct {
		name, text, link string
		want             map[netip.Addr]int
	}{
		{"several groups", igmpText(), "eth0", groups("239.1.2.3", 2, "239.1.1.7", 1, "224.0.0.1", 1)},
		{"a long name", igmpText(), "enp3s0f0np0v15", groups("224.0.0.1", 3)},
		{"an interface that isn't there", igmpText(), "eth1", groups()},
		{"the heading is no interface", igmpText(), "Device", groups()},
		{"nothing", "", "eth0", groups()},
		{"an interface without groups", "2\teth0      :     0      V3\n", "eth0", groups()},
	} {
		got, err := parseIGMP([]byte(tt.text), tt.link)
		if err != nil || !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v, error %v, want %v", tt.name, got, err, tt.want)
		}
	}
	for _, line := range []string{
		"\t\t\t\tEF010107\n", "\t\n", "\t\t\t\t1EF010107 1\n", "\t\t\t\tEF01010G 1\n", "\t\t\t\tEF010107 -1\n",
		"\t\t\t\tEF010107 4294967295\n", "\t" + strings.Repeat("0", 1<<17),
	} {
		if got, err := parseIGMP([]byte("2\teth0: 1\n"+line), "eth0"); !errors.Is(err, errMalformed) {
			t.Errorf("line %.40q: got %v, error %v, want errMalformed", line, got, err)
		}
	}
	if got, err := parseIGMP([]byte("2\teth1: 1\n\tsomething else\n"+igmpText()), "eth0"); err != nil || len(got) != 3 {
		t.Errorf("another interface's malformed group: got %v, error %v", got, err)
	}
}

// What the kernel's text can be while groups come and go.
func TestParseIGMPTorn(t *testing.T) {
	whole := strings.SplitAfter(igmpText(), "\n")
	without := func(line int) string {
		return strings.Join(slices.Delete(slices.Clone(whole), line, line+1), "")
	}
	for name, text := range map[string]string{
		"an interface's line is missing":        without(3),
		"the first interface's line is missing": without(1),
		"a group is missing":                    without(5),
		"the last group is missing":             without(8),
		"the last interface's line alone":       strings.Join(whole[:8], ""),
		"a group twice, another one missing":    strings.Join(append(slices.Clone(whole[:6]), whole[5], whole[7], whole[8]), ""),
	} {
		if got, err := parseIGMP([]byte(text), "eth0"); !errors.Is(err, errTorn) {
			t.Errorf("%s: got %v, error %v, want errTorn", name, got, err)
		}
	}
}

// A socket's memberships on the running kernel, more than a page of them.
func TestIGMPOfThisMachine(t *testing.T) {
	// One socket may have 20 groups (net.ipv4.igmp_max_memberships).
	const sockets, groups = 20, 10
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]int{}
	for s := range sockets {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		for g := range groups {
			addr := [4]byte{239, 77, byte(s), byte(g)}
			if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: addr, Ifindex: int32(lo.Index)}); err != nil {
				t.Fatal(err)
			}
			want[netip.AddrFrom4(addr)] = 1
		}
	}
	ns, err := New().OpenNetNS("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for name, space := range map[string]NetNS{"own namespace": nil, "by path": ns} {
		got, err := New().IGMP(space, "lo")
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(got, func(a netip.Addr, _ int) bool { b := a.As4(); return b[0] != 239 || b[1] != 77 })
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %d groups, want %d: %v", name, len(got), len(want), got)
		}
	}
	if got, err := New().IGMP(nil, "nosuchlink"); err != nil || len(got) != 0 {
		t.Errorf("an interface that isn't there: got %v, error %v, want none", got, err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := New().IGMP(ns, "lo"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("in a closed namespace: got error %v, want os.ErrClosed", err)
	}
	if _, err := New().IGMP(foreign{}, "lo"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("in another kernel's namespace: got error %v, want EINVAL", err)
	}
}

func TestReadAllIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := readAll(path, 40<<10); err != nil || len(b) != 40<<10 {
		t.Errorf("got %d bytes, error %v, want all", len(b), err)
	}
	if _, err := readAll(path, 40<<10-1); !errors.Is(err, unix.EFBIG) {
		t.Errorf("too large a file: got error %v, want EFBIG", err)
	}
	if _, err := readAll(path+"-missing", 1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no file: got error %v, want ENOENT", err)
	}
}

func FuzzParseIGMP(f *testing.F) {
	f.Add([]byte(igmpText()), "eth0")
	f.Fuzz(func(t *testing.T, text []byte, link string) {
		groups, err := parseIGMP(text, link)
		if err != nil {
			return
		}
		if len(groups) > len(text)/4 {
			t.Errorf("%d groups from %d bytes", len(groups), len(text))
		}
		for group, users := range groups {
			if !group.Is4() || users < 0 {
				t.Errorf("%d users of %v", users, group)
			}
		}
	})
}
