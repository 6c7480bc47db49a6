//go:build realkernel

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bound is how long anything may take that is waited for. Under software
// emulation on a machine that has other work a pod's start may take a minute.
const bound = 5 * time.Minute

// process is a program that runs in the background.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	// starting: its end is looked at by whoever waits for it.
	starting bool
}

// startProcess starts a program whose output goes to logs/NAME.log, appended.
func (c *cluster) startProcess(t *testing.T, name string, argv ...string) *process {
	t.Helper()
	p := &process{name: name, log: filepath.Join(c.settings.logs(), name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	fmt.Fprintf(out, "--- %s\n", strings.Join(argv, " "))
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// There is memory enough, and collecting garbage is dear under emulation.
	p.cmd.Env = append(os.Environ(), "GOGC=400")
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // looked at through ProcessState
	}()
	c.running[name] = p
	return p
}

// kill ends the process at once, and waits for it.
func (c *cluster) kill(t *testing.T, p *process) {
	t.Helper()
	delete(c.running, p.name)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
}

func (p *process) lives() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop ends the process as an administrator would, and waits for it.
func (c *cluster) stop(t *testing.T, p *process) {
	t.Helper()
	delete(c.running, p.name)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		t.Errorf("%s is still there 30 s after SIGTERM: killed", p.name)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// stopAll ends what is left.
func (c *cluster) stopAll() {
	for _, p := range c.running {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	clear(c.running)
}

// ended is an error when a process that should run doesn't.
func (c *cluster) ended() error {
	for _, p := range c.running {
		if !p.starting && !p.lives() {
			return fmt.Errorf("%s has ended: %v; its last output:\n%s", p.name, p.cmd.ProcessState, tail(p.log))
		}
	}
	return nil
}

// tail is the end of a file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// eventually waits until check gives nil. It ends the test when that takes
// longer than the bound or when a process of the cluster has died.
func (c *cluster) eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	c.within(t, bound, what, check)
}

// within is eventually with a bound of its own.
func (c *cluster) within(t *testing.T, bound time.Duration, what string, check func() error) {
	t.Helper()
	start := time.Now()
	for {
		looked := time.Now()
		err := check()
		if err == nil {
			if waited := time.Since(start); waited > 3*time.Second {
				t.Logf("waited %.0f s for %s", waited.Seconds(), what)
			}
			return
		}
		if dead := c.ended(); dead != nil {
			t.Fatalf("waiting for %s: %v", what, dead)
		}
		if time.Since(start) > bound {
			t.Fatalf("waited %s for %s: %v", bound, what, err)
		}
		// A look that is dear isn't taken more often than the machine can bear.
		time.Sleep(max(200*time.Millisecond, 2*time.Since(looked)))
	}
}

// output runs a command to its end and gives its standard output.
func output(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// run is output for a command that must succeed.
func run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := output(argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
