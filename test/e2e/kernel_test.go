//go:build realkernel

package e2e

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// igmpGroups are the IPv4 groups that the kernel is a member of on an interface,
// in the network namespace of a process; 0: this one's.
func igmpGroups(pid int, iface string) ([]netip.Addr, error) {
	process := "self"
	if pid != 0 {
		process = strconv.Itoa(pid)
	}
	text, err := os.ReadFile(filepath.Join("/proc", process, "net", "igmp"))
	if err != nil {
		return nil, err
	}
	var groups []netip.Addr
	current := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2 || fields[0] == "Idx":
		case line[0] != '\t':
			current = strings.TrimSuffix(fields[1], ":")
		case current == iface:
			raw, err := hex.DecodeString(fields[0])
			if err != nil || len(raw) != 4 {
				return nil, fmt.Errorf("a line of /proc/net/igmp: %q", line)
			}
			// The address is printed as a number of this machine's byte order.
			groups = append(groups, netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.LittleEndian.Uint32(raw)))))
		}
	}
	return groups, nil
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
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, entry := range entries {
		text, err := os.ReadFile(entry)
		if err != nil {
			continue // it has ended
		}
		if slices.Contains(strings.Split(string(text), "\x00"), argument) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// agentResources are what a forgotten membership would show in.
type agentResources struct {
	ids           int // of rdma_cm
	channels      int // open files on /dev/infiniband/rdma_cm
	netNamespaces int // open network namespaces
}

// agentResources counts them in the kernel's tables.
func (c *cluster) agentResources() (agentResources, error) {
	var r agentResources
	pid := c.agent.cmd.Process.Pid
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		return r, err
	}
	for _, file := range files {
		target, err := os.Readlink(filepath.Join(dir, file.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		switch {
		case target == "/dev/infiniband/rdma_cm":
			r.channels++
		case strings.HasPrefix(target, "net:[") || strings.Contains(target, "/netns/") || strings.HasSuffix(target, "/ns/net"):
			r.netNamespaces++
		}
	}
	text, err := output("rdma", "-j", "resource", "show", "cm_id")
	if err != nil {
		return r, err
	}
	var ids []struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(text), &ids); err != nil {
		return r, fmt.Errorf("rdma resource show cm_id: %w: %q", err, text)
	}
	for _, id := range ids {
		if id.PID == pid {
			r.ids++
		}
	}
	return r, nil
}

// gid reads an entry of the pods' device's GID table.
func gid(t *testing.T, index int32) netip.Addr {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids/%d", podDevice, index))
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
