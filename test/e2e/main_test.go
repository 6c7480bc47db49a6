//go:build realkernel

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// settings are given by run.sh, as environment variables.
type settings struct {
	root       string // the checkout
	kubernetes string // folder with etcd, kube-apiserver, ...
	containerd string // folder with containerd, its shim, ctr and CNI plugins
	programs   string // folder with controller, agent, rdmamc, pod and receiver
	out        string // folder that outlives the machine: logs
}

func settingsFromEnvironment() (settings, error) {
	var s settings
	for name, field := range map[string]*string{
		"E2E_ROOT":       &s.root,
		"E2E_KUBERNETES": &s.kubernetes,
		"E2E_CONTAINERD": &s.containerd,
		"E2E_PROGRAMS":   &s.programs,
		"VM_OUT":         &s.out,
	} {
		value := os.Getenv(name)
		if value == "" {
			return s, fmt.Errorf("%s isn't set: start these tests by test/e2e/run.sh", name)
		}
		*field = value
	}
	return s, nil
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := checkMachine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// checkMachine refuses to take over a machine that isn't the test's own.
func checkMachine() error {
	if os.Getpid() == 1 || os.Getuid() != 0 {
		return fmt.Errorf("these tests run as root in the machine of hack/vm: use test/e2e/run.sh")
	}
	for _, want := range []string{"/run/vm/guest", "/sys/class/infiniband/rxe1"} {
		if _, err := os.Stat(want); err != nil {
			return fmt.Errorf("these tests take over the machine that they run on; it must be that of hack/vm: use test/e2e/run.sh (%w)", err)
		}
	}
	return nil
}

func (s settings) logs() string { return filepath.Join(s.out, "logs") }
