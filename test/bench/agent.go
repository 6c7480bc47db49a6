package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// wholeAgent measures the agent as it is installed: its resident memory with a
// full node's memberships, what it costs when nothing happens, and the time
// from a ready sandbox to the membership.
func wholeAgent(ctx context.Context, s *settings, w *world) (rows []row, err error) {
	c, err := startCluster(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.createGroups(ctx); err != nil {
		return nil, err
	}
	full, err := c.fullNode(ctx, w)
	if err != nil {
		return nil, err
	}
	sandboxes, err := c.sandboxToJoined(ctx, w)
	return append(full, sandboxes...), err
}

// fullNode starts the agent on a node whose namespaces are all pods, each a
// member of every group.
func (c *cluster) fullNode(ctx context.Context, w *world) ([]row, error) {
	for n := range w.count {
		pod, err := c.createPod(ctx, "pod"+strconv.Itoa(n), c.s.groups)
		if err != nil {
			return nil, err
		}
		if err := c.runSandbox(pod, "sandbox"+strconv.Itoa(n), n); err != nil {
			return nil, err
		}
	}
	agent, err := c.startAgent("")
	if err != nil {
		return nil, err
	}
	want := w.count * c.s.groups
	start := time.Now()
	if err := eventually(ctx, 5*time.Minute, time.Second, "all memberships are joined", func() error {
		n, err := w.members(c.s.groups)
		if err == nil && n != want {
			err = fmt.Errorf("%d of %d", n, want)
		}
		return err
	}); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "    the agent had joined %d after %.0f s\n", want, time.Since(start).Seconds())
	if err := quiet(ctx, agent); err != nil {
		return nil, err
	}
	share, err := c.idleShare(ctx, agent)
	if err != nil {
		return nil, err
	}
	resident, err := residentMemory(agent)
	if err != nil {
		return nil, err
	}
	if err := c.end(agent); err != nil {
		return nil, fmt.Errorf("the agent: %w", err)
	}
	for n := range w.count {
		if err := c.runtime.StopSandbox("sandbox" + strconv.Itoa(n)); err != nil {
			return nil, err
		}
	}
	return []row{
		newRow(fmt.Sprintf("the agent's resident memory with %d memberships", want), resident, 0, "MiB", 64),
		share,
	}, nil
}

// idleShare is the processor time of an agent that has nothing to do, with the
// emulated processor's slowness divided out.
func (c *cluster) idleShare(ctx context.Context, agent *exec.Cmd) (row, error) {
	before, err := processorTime(agent)
	if err != nil {
		return row{}, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return row{}, ctx.Err()
	case <-time.After(c.s.idle):
	}
	after, err := processorTime(agent)
	if err != nil {
		return row{}, err
	}
	percent := 100 * float64(after-before) / float64(time.Since(start))
	slowness := 1.0
	if c.s.host > 0 {
		took, err := spin()
		if err != nil {
			return row{}, err
		}
		slowness = float64(took) / float64(c.s.host)
	}
	fmt.Fprintf(os.Stderr, "    idle: %.3g %% of a core here, which is %.3g times slower than outside\n", percent, slowness)
	return newRow("the idle agent's share of a core", percent/slowness, 0, "%", 0.2), nil
}

// quiet waits until the agent has used less than a tenth of the emulated
// processor for nine seconds: reporting to all pods what they have takes a while.
func quiet(ctx context.Context, agent *exec.Cmd) error {
	last, err := processorTime(agent)
	if err != nil {
		return err
	}
	calm := 0
	return eventually(ctx, 3*time.Minute, 3*time.Second, "the agent is idle", func() error {
		now, err := processorTime(agent)
		if err != nil {
			return err
		}
		used := now - last
		last = now
		if used > 300*time.Millisecond {
			calm = 0
			return fmt.Errorf("it used %v in three seconds", used)
		}
		if calm++; calm < 3 {
			return fmt.Errorf("calm for %d s", 3*calm)
		}
		return nil
	})
}

// sandboxToJoined measures the time from a sandbox that the runtime has just
// made ready to the membership in the kernel, with NRI and with the poll alone.
func (c *cluster) sandboxToJoined(ctx context.Context, w *world) ([]row, error) {
	bare, err := c.bareJoin(ctx)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, source := range []struct{ name, nri string }{{"NRI", c.socket("nri")}, {"the runtime's poll", ""}} {
		if source.nri != "" {
			if err := c.runtime.StartNRI(source.nri); err != nil {
				return nil, err
			}
		}
		agent, err := c.startAgent(source.nri)
		if err != nil {
			return nil, err
		}
		var all []time.Duration
		for i := range c.s.repeats {
			took, err := c.oneSandbox(ctx, w, fmt.Sprintf("%d-%d", len(rows), i))
			if err != nil {
				return nil, fmt.Errorf("by %s: %w", source.name, err)
			}
			all = append(all, took)
		}
		if err := c.end(agent); err != nil {
			return nil, fmt.Errorf("the agent: %w", err)
		}
		if source.nri != "" {
			c.runtime.StopNRI()
		}
		rows = append(rows, newRow("from a ready sandbox to joined, by "+source.name, milliseconds(median(all)), bare, "ms", 0))
	}
	return rows, nil
}

// oneSandbox runs a pod's sandbox in the first namespace until it is left again.
func (c *cluster) oneSandbox(ctx context.Context, w *world, name string) (time.Duration, error) {
	pod, err := c.createPod(ctx, "single-"+name, 1)
	if err != nil {
		return 0, err
	}
	id := "single-sandbox-" + name
	start := time.Now()
	if err := c.runSandbox(pod, id, 0); err != nil {
		return 0, err
	}
	wait := func(want int) error {
		return eventually(ctx, time.Minute, time.Millisecond, fmt.Sprintf("%d memberships", want), func() error {
			n, err := w.joined(0, 1)
			if err == nil && n != want {
				err = fmt.Errorf("%d", n)
			}
			return err
		})
	}
	if err := wait(1); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if err := c.runtime.StopSandbox(id); err != nil {
		return 0, err
	}
	return took, wait(0)
}

// bareJoin is one membership by the bare calls, in milliseconds.
func (c *cluster) bareJoin(ctx context.Context) (float64, error) {
	var all []time.Duration
	for range c.s.repeats {
		took, err := c.s.runReference(ctx, "many", pattern, "1", "1")
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return milliseconds(median(all)), nil
}

// residentMemory is a process's, in MiB.
func residentMemory(cmd *exec.Cmd) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		var kib float64
		if _, err := fmt.Sscanf(string(line), "VmRSS: %f kB", &kib); err == nil {
			return kib / 1024, nil
		}
	}
	return 0, errors.New("no VmRSS in the process's status")
}

// processorTime is what a process has used since its start: fields 14 and 15 of
// its stat, in hundredths of a second.
func processorTime(cmd *exec.Cmd) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("a process's stat has %d fields", len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// spin is a fixed amount of the kind of work that the agent does: the best of
// five, since whatever else runs only adds to it.
func spin() (time.Duration, error) {
	type document struct {
		Name   string
		Values map[string][]int
	}
	d := document{"spin", map[string][]int{}}
	for i := range 50 {
		d.Values[strconv.Itoa(i)] = []int{i, i * i, i * i * i}
	}
	best := time.Duration(0)
	for range 5 {
		start := time.Now()
		for range 300 {
			text, err := json.Marshal(d)
			if err == nil {
				err = json.Unmarshal(text, &d)
			}
			if err != nil {
				return 0, err
			}
		}
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
