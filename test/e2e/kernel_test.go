//go:build realkernel

package e2e

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// igmpUsers counts, for each IPv4 group that the kernel is a member of on an
// interface in the network namespace of a process (0: this one's), who has
// joined it there: sockets and rdma_cm's memberships.
func igmpUsers(pid int, iface string) (map[netip.Addr]int, error) {
	process := "self"
	if pid != 0 {
		process = strconv.Itoa(pid)
	}
	text, err := os.ReadFile(filepath.Join("/proc", process, "net", "igmp"))
	if err != nil {
		return nil, err
	}
	users := map[netip.Addr]int{}
	current := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2 || fields[0] == "Idx":
		case line[0] != '\t':
			current = strings.TrimSuffix(fields[1], ":")
		case current == iface:
			raw, err := hex.DecodeString(fields[0])
			n, nerr := strconv.Atoi(fields[1])
			if err != nil || len(raw) != 4 || nerr != nil {
				return nil, fmt.Errorf("a line of /proc/net/igmp: %q", line)
			}
			// The address is printed as a number of this machine's byte order.
			users[netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.LittleEndian.Uint32(raw))))] = n
		}
	}
	return users, nil
}

// igmpGroups are the groups of igmpUsers.
func igmpGroups(pid int, iface string) ([]netip.Addr, error) {
	users, err := igmpUsers(pid, iface)
	return slices.SortedFunc(maps.Keys(users), netip.Addr.Compare), err
}

// memberOnce is nil when the kernel is a member of exactly these groups on an
// interface in the namespace of a process, of each of them once.
func memberOnce(pid int, iface string, groups ...netip.Addr) error {
	users, err := igmpUsers(pid, iface)
	if err != nil {
		return err
	}
	delete(users, allHosts)
	want := map[netip.Addr]int{}
	for _, group := range groups {
		want[group] = 1
	}
	if !maps.Equal(users, want) {
		err = fmt.Errorf("the kernel is a member on %s of (group: how many times) %v, want %v", iface, users, want)
	}
	return err
}

// isMember is nil when the kernel is a member of the group on an interface in
// the namespace of a process.
func isMember(pid int, iface string, group netip.Addr) error {
	groups, err := igmpGroups(pid, iface)
	if err == nil && !slices.Contains(groups, group) {
		err = fmt.Errorf("the kernel is a member of %v on %s, not of %s", groups, iface, group)
	}
	return err
}

// isNoMember is nil when the kernel isn't a member of the group.
func isNoMember(pid int, iface string, group netip.Addr) error {
	groups, err := igmpGroups(pid, iface)
	if err == nil && slices.Contains(groups, group) {
		err = fmt.Errorf("the kernel is still a member of %s on %s", group, iface)
	}
	return err
}

// processWith finds the processes that have an argument on their command line.
func processWith(argument string) []int {
	var pids []int
	for found, pid := range processArguments(argument) {
		if found == argument {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processArguments are all arguments that begin so, on any command line, each
// with the process that has it.
func processArguments(prefix string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, entry := range entries {
			text, err := os.ReadFile(entry)
			if err != nil {
				continue // it has ended
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry)))
			if err != nil {
				continue
			}
			for argument := range strings.SplitSeq(string(text), "\x00") {
				if strings.HasPrefix(argument, prefix) && !yield(argument, pid) {
					return
				}
			}
		}
	}
}

// gid reads an entry of a device's GID table.
func gid(t *testing.T, device string, index int32) netip.Addr {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids/%d", device, index))
	if err != nil {
		t.Fatal(err)
	}
	address, err := netip.ParseAddr(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// send has mckey send ten packets to the group from the node's other NIC. It
// is a member itself, on that NIC, as long as it runs.
func send(t *testing.T, group netip.Addr) {
	t.Helper()
	run(t, "mckey", "-s", "-b", senderAddress, "-m", group.String(), "-C", strconv.Itoa(packets))
}

const packets = 10
