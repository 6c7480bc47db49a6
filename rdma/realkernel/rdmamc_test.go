//go:build realkernel

package realkernel

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
)

// rdmamcEnv names the environment variable with the path of cmd/rdmamc, built
// on the host: a compiler takes its time in the VM.
const rdmamcEnv = "RDMAMC"

// rdmamcHolds runs the node tool as its users do, in a namespace of its own.
func rdmamcHolds(t *testing.T, m conformance.Machine) {
	program := os.Getenv(rdmamcEnv)
	if program == "" {
		t.Fatalf("%s is not set: build cmd/rdmamc and give its absolute path", rdmamcEnv)
	}
	if out := string(run(t, program, "devices")); !strings.Contains(out, "rxe0") || !strings.Contains(out, "rdma1") {
		t.Errorf("devices lacks rxe0 or rdma1:\n%s", out)
	}
	path := m.AddNetNS(t)
	m.AddMACVLAN(t, path, "net1", "rdma0", netip.MustParsePrefix("10.0.0.91/24"))
	for _, tt := range []struct{ path, link, gid, sendOnly string }{
		{"", "rdma1", "::ffff:10.0.0.3", ""},
		{path, "net1", "::ffff:10.0.0.91", ""},
		{path, "net1", "::ffff:10.0.0.91", "--send-only"},
	} {
		args := []string{"join", "239.3.3.7", "--interface", tt.link, "-o", "json"}
		if tt.path != "" {
			args = append(args, "--netns", tt.path)
		}
		users := 1
		if tt.sendOnly != "" {
			args, users = append(args, tt.sendOnly), 0
		}
		cmd := exec.Command(program, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var shown struct{ MGID, GID, Interface string }
		if err := json.NewDecoder(out).Decode(&shown); err != nil {
			t.Errorf("%s: %v", cmd, err)
		}
		if shown.MGID != "::ffff:239.3.3.7" || shown.GID != tt.gid || shown.Interface != tt.link {
			t.Errorf("%s: got %+v", cmd, shown)
		}
		group := netip.MustParseAddr("239.3.3.7")
		if got := m.IGMP(t, tt.path, tt.link)[group]; got != users {
			t.Errorf("%s: %d users of the group, want %d", cmd, got, users)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s, interrupted: %v", cmd, err)
		}
		if got := m.IGMP(t, tt.path, tt.link)[group]; got != 0 {
			t.Errorf("%s: %d users of the group after its end, want none", cmd, got)
		}
	}
}
