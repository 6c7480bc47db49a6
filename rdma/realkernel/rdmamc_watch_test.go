//go:build realkernel

package realkernel

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
)

// rdmamcWatches probes with the node tool, and watches a namespace with it:
// what is there, its own membership, and an interface that goes.
func rdmamcWatches(t *testing.T, m conformance.Machine) {
	program := os.Getenv(rdmamcEnv)
	if program == "" {
		t.Fatalf("%s is not set: build cmd/rdmamc and give its absolute path", rdmamcEnv)
	}
	if out := string(run(t, program, "probe", "--interface", "rdma0")); !strings.Contains(out, "nothing found") {
		t.Errorf("probe:\n%s", out)
	}
	path := m.AddNetNS(t)
	m.AddMACVLAN(t, path, "net1", "rdma0", netip.MustParsePrefix("10.0.0.97/24"))
	m.AddMACVLAN(t, path, "net2", "rdma0", netip.MustParsePrefix("10.0.0.98/24"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*conformance.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "watch", "-o", "json", "--netns", path, "-g", "239.3.4.7", "--interface", "net1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(out)
	until := func(what string, wanted map[[2]string]string) {
		t.Helper()
		for len(wanted) > 0 {
			var line struct {
				Change, Kind, Name string
				Fields             map[string]string
			}
			if err := lines.Decode(&line); err != nil {
				t.Fatalf("%s: %v; not shown: %v", what, err, wanted)
			}
			key := [2]string{line.Kind, line.Name}
			state, ok := wanted[key]
			// What the kernel does later is added instead of present.
			there := state == "there" && line.Change != "removed"
			if ok && (there || line.Change == state || line.Fields["state"] == state || line.Fields["users"] == state) {
				delete(wanted, key)
			}
		}
	}
	until("at the beginning", map[[2]string]string{
		{"device", "rxe0"}: "there", {"port", "rxe0/1"}: "Active", {"interface", "net1"}: "there", {"interface", "net2"}: "there",
		{"gid", "rxe0/1 ::ffff:10.0.0.97 RoCE v2 net1"}: "there", {"group", "net1 239.3.4.7"}: "1", {"membership", "net1 239.3.4.7"}: "joined",
	})
	m.DeleteInterface(t, path, "net2")
	until("an interface deleted", map[[2]string]string{{"interface", "net2"}: "removed"})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for lines.Decode(&struct{}{}) == nil { // what it had to show
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s, interrupted: %v", cmd, err)
	}
	if got := m.IGMP(t, path, "net1")[netip.MustParseAddr("239.3.4.7")]; got != 0 {
		t.Errorf("%d users of the group after its end, want none", got)
	}
}
