//go:build realkernel

// Package vm has no code: this tests the script run.
package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// result is what run handed back.
type result struct {
	stdout, stderr string
	code           int
}

// boot runs a shell script in the machine.
func boot(t *testing.T, dir, script string, environment ...string) result {
	t.Helper()
	program, err := filepath.Abs("run")
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func TestHandsBackWhatTheProgramDid(t *testing.T) {
	out := t.TempDir()
	dir := t.TempDir()
	got := boot(t, dir, `pwd; echo "$HELLO"; echo to stderr >&2; echo kept > "$VM_OUT/kept"; echo lost > lost; cat; exit 7`,
		"HELLO=a b\nc", "VM_OUT="+out)
	want := result{stdout: fmt.Sprintf("%s\na b\nc\n", dir), stderr: "to stderr\n", code: 7}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(out, "kept")); err != nil || string(text) != "kept\n" {
		t.Errorf("file in VM_OUT: %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "lost")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the machine could write outside of VM_OUT: %v", err)
	}
}

func TestProgramKilledBySignal(t *testing.T) {
	if got := boot(t, t.TempDir(), `kill -SEGV $$`); got.code != 128+11 {
		t.Errorf("got %+v, want code %d", got, 128+11)
	}
}

// The machine's own failures are told apart from the program's.
func TestFailuresOfTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		script, environment string
		says                []string
	}{
		"kernel panic": {"echo c >/proc/sysrq-trigger", "VM_TIMEOUT=300", []string{"without an exit code", "sysrq_handle_crash"}},
		"time limit":   {"sleep 1000", "VM_TIMEOUT=1", []string{"not ended after 1 s", "VM_TIMEOUT"}},
		"no kernel":    {"true", "KERNEL=" + t.TempDir(), []string{"no boot/vmlinuz-*", "KERNEL"}},
		"no suite":     {"true", "KERNEL=suite:../x", []string{"no name of a suite", "KERNEL"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := boot(t, t.TempDir(), c.script, c.environment)
			if got.code != 125 || got.stdout != "" {
				t.Errorf("code %d, standard output %q, want 125 and nothing", got.code, got.stdout)
			}
			for _, words := range c.says {
				if !strings.Contains(got.stderr, words) {
					t.Errorf("it doesn't say %q: %s", words, got.stderr)
				}
			}
		})
	}
}
