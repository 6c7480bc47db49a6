package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

// pollInterval is how often a condition that is waited for is looked at.
const pollInterval = 50 * time.Millisecond

// demo is one run.
type demo struct {
	cluster    *localcluster.Cluster
	root       string // of the checkout
	kubeconfig string
	out        io.Writer
	bound      time.Duration
}

// step is a part of the demo. The negative controls know the names.
type step struct {
	name  string
	title string
	run   func(context.Context) error
}

// errInterrupted is the end of a run that was interrupted.
var errInterrupted = errors.New("interrupted; everything has been ended")

// stepError says which step failed.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("FAILED in step %s: %v", e.step, e.err) }
func (e *stepError) Unwrap() error { return e.err }

// play runs steps in order until one fails.
func (d *demo) play(ctx context.Context, steps []step) error {
	for i, s := range steps {
		fmt.Fprintf(d.out, "\n── %d/%d %s: %s\n", i+1, len(steps), s.name, s.title)
		start := time.Now()
		if err := s.run(ctx); err != nil {
			return &stepError{step: s.name, err: err}
		}
		fmt.Fprintf(d.out, "   ok: step %s took %.1f s\n", s.name, time.Since(start).Seconds())
	}
	return nil
}

// say prints one thing that was seen.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "   "+format+"\n", args...)
}

// kubectl runs the real kubectl as the administrator and shows it.
func (d *demo) kubectl(ctx context.Context, args ...string) error {
	shown := strings.ReplaceAll(strings.Join(args, " "), d.root+"/", "")
	fmt.Fprintf(d.out, "   $ kubectl %s\n", shown)
	cmd := exec.CommandContext(ctx, d.cluster.Kubectl, append([]string{"--kubeconfig", d.kubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		fmt.Fprintf(d.out, "     %s\n", strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", shown, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// errNever wraps what must not happen: nothing is gained by waiting on.
var errNever = errors.New("must not be")

// eventually looks at a condition until it holds, for as long as the bound. The
// error of the last look that had ended by then says what was seen instead: a
// later one failed for want of time.
func (d *demo) eventually(ctx context.Context, what string, check func(context.Context) error) error {
	deadline := time.Now().Add(d.bound)
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := check(bounded)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errNever):
			return fmt.Errorf("%s: %w", what, err)
		case time.Now().Before(deadline) || last == nil:
			last = err
		}
		select {
		case <-ticker.C:
		case <-bounded.Done():
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: interrupted: %w", what, err)
			}
			return fmt.Errorf("%s: not within %v; last seen: %w", what, d.bound, last)
		}
	}
}
