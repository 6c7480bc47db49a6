//go:build realkernel

package realkernel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/leak"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leak.Main(m)
}

func TestConformance(t *testing.T) {
	conformance.Run(t, newMachine, slices.Concat(conformance.Scenarios(), realOnly(), seamOnly()))
}

// machine is conformance's on the running kernel.
type machine struct{ spaces int }

func newMachine(*testing.T) conformance.Machine { return &machine{} }

func (m *machine) Host() *rdma.Host { return rdma.Local() }

func (m *machine) Kernel() sys.Kernel { return sys.New() }

func (m *machine) AddNetNS(t *testing.T) string {
	t.Helper()
	m.spaces++
	name := fmt.Sprintf("conformance%d", m.spaces)
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "delete", name) })
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return "/run/netns/" + name
}

func (m *machine) AddMACVLAN(t *testing.T, path, name, parent string, addr netip.Prefix) {
	t.Helper()
	m.addLink(t, path, name, addr, "link", parent, "type", "macvlan", "mode", "bridge")
	eventuallyGID(t, m, addr.Addr(), true)
}

// eventuallyGID waits until a port has the GID of an address, or none has:
// the table follows by a work queue.
func eventuallyGID(t *testing.T, m conformance.Machine, addr netip.Addr, want bool) {
	t.Helper()
	gid := netip.AddrFrom16(addr.As16())
	conformance.Eventually(t, fmt.Sprintf("a GID of %v: %v", addr, want), func() bool {
		for _, device := range []string{"rxe0", "rxe1"} {
			for index := range 32 { // of 1,024, and the first free one is taken
				if got, err := m.Kernel().GID(device, 1, index); err == nil && got.GID == gid {
					return want
				}
			}
		}
		return !want
	})
}

func (m *machine) AddPlain(t *testing.T, path, name string, addr netip.Prefix) {
	t.Helper()
	m.addLink(t, path, name, addr, "type", "dummy")
}

// addLink makes a link under a passing name, so that it can have in its own
// namespace a name that is taken in this one.
func (m *machine) addLink(t *testing.T, path, name string, addr netip.Prefix, kind ...string) {
	t.Helper()
	const passing = "conformance"
	run(t, "ip", append([]string{"link", "add", passing}, kind...)...)
	if path == "" {
		run(t, "ip", "link", "set", passing, "name", name)
	} else {
		run(t, "ip", "link", "set", passing, "netns", filepath.Base(path), "name", name)
	}
	t.Cleanup(func() {
		if !slices.Contains(linkNames(t, path), name) {
			return // the test deleted it
		}
		in(t, path, "ip", "link", "delete", name)
	})
	in(t, path, "ip", "address", "add", addr.String(), "dev", name)
	in(t, path, "ip", "link", "set", name, "up")
}

func (m *machine) DeleteInterface(t *testing.T, path, name string) {
	t.Helper()
	in(t, path, "ip", "link", "delete", name)
}

func (m *machine) AddAddress(t *testing.T, path, name string, addr netip.Prefix) {
	t.Helper()
	in(t, path, "ip", "address", "add", addr.String(), "dev", name)
	eventuallyGID(t, m, addr.Addr(), true)
}

func (m *machine) DeleteAddress(t *testing.T, path, name string, addr netip.Prefix) {
	t.Helper()
	in(t, path, "ip", "address", "delete", addr.String(), "dev", name)
	eventuallyGID(t, m, addr.Addr(), false)
}

func (m *machine) AddDevice(t *testing.T, device, netdev string) {
	t.Helper()
	run(t, "rdma", "link", "add", device, "type", "rxe", "netdev", netdev)
}

func (m *machine) RemoveDevice(t *testing.T, device string) {
	t.Helper()
	run(t, "rdma", "link", "delete", device)
	t.Cleanup(func() {
		if _, err := os.Stat("/sys/class/infiniband/" + device); err != nil {
			m.AddDevice(t, device, "rdma"+strings.TrimPrefix(device, "rxe"))
		}
	})
}

func (m *machine) UnloadUCM() error {
	out, err := exec.Command("modprobe", "-r", "rdma_ucm").CombinedOutput()
	if err != nil {
		return fmt.Errorf("modprobe -r rdma_ucm: %w: %s", err, out)
	}
	return nil
}

func (m *machine) LoadUCM(t *testing.T) {
	t.Helper()
	run(t, "modprobe", "rdma_ucm")
}

// IGMP reads /proc/net/igmp: a line for each interface, then one for each of
// its groups, the address as a number in host order and the users.
func (m *machine) IGMP(t *testing.T, path, name string) map[netip.Addr]int {
	t.Helper()
	groups := map[netip.Addr]int{}
	current := ""
	lines := bufio.NewScanner(bytes.NewReader(in(t, path, "cat", "/proc/net/igmp")))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] == "Idx" {
			continue
		}
		if !strings.HasPrefix(lines.Text(), "\t") {
			current = strings.TrimSuffix(fields[1], ":")
			continue
		}
		if current != name {
			continue
		}
		raw, err := hex.DecodeString(fields[0])
		if err != nil || len(raw) != 4 {
			t.Fatalf("group %q in /proc/net/igmp: %v", fields[0], err)
		}
		slices.Reverse(raw)
		users, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatalf("users %q in /proc/net/igmp: %v", fields[1], err)
		}
		groups[netip.AddrFrom4([4]byte(raw))] = users
	}
	return groups
}

// Switch asks the bridge: portN is at the other end of rxeN's interface.
func (m *machine) Switch(t *testing.T, group netip.Addr) []string {
	t.Helper()
	var tables []struct {
		MDB []struct {
			Port string `json:"port"`
			Grp  string `json:"grp"`
		} `json:"mdb"`
	}
	out := run(t, "bridge", "-n", "switch", "-j", "mdb", "show")
	if err := json.Unmarshal(out, &tables); err != nil {
		t.Fatalf("bridge mdb: %v\n%s", err, out)
	}
	var devices []string
	for _, table := range tables {
		for _, e := range table.MDB {
			if e.Grp == group.String() && strings.HasPrefix(e.Port, "port") {
				devices = append(devices, "rxe"+strings.TrimPrefix(e.Port, "port"))
			}
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

func linkNames(t *testing.T, path string) []string {
	t.Helper()
	var links []struct {
		Name string `json:"ifname"`
	}
	if err := json.Unmarshal(in(t, path, "ip", "-j", "link", "show"), &links); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// in runs a program in the namespace at path, "" this one.
func in(t *testing.T, path, program string, args ...string) []byte {
	t.Helper()
	if path == "" {
		return run(t, program, args...)
	}
	return run(t, "nsenter", append([]string{"--net=" + path, program}, args...)...)
}

func run(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*conformance.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return out
}
