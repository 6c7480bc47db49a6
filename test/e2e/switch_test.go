//go:build realkernel

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// switchPorts are the switch's ports that it delivers a group to.
func switchPorts(group netip.Addr) ([]string, error) {
	text, err := output("bridge", "-n", "switch", "-j", "mdb", "show", "dev", "br0")
	if err != nil {
		return nil, err
	}
	var dump []struct {
		MDB []struct{ Port, Grp string }
	}
	if err := json.Unmarshal([]byte(text), &dump); err != nil {
		return nil, fmt.Errorf("bridge mdb show: %w: %q", err, text)
	}
	var ports []string
	for _, part := range dump {
		for _, entry := range part.MDB {
			if entry.Grp == group.String() {
				ports = append(ports, entry.Port)
			}
		}
	}
	return ports, nil
}

// onSwitch is nil when the switch delivers the group to the pods' port, and to
// no other.
func onSwitch(group netip.Addr) error { return onSwitchPorts(group, podPort) }

// onSwitchPorts is nil when the switch delivers the group to these ports, in
// alphabetical order, and to no other.
func onSwitchPorts(group netip.Addr, want ...string) error {
	ports, err := switchPorts(group)
	slices.Sort(ports)
	if err == nil && !slices.Equal(ports, want) {
		err = fmt.Errorf("the switch delivers %s to ports %q, want %q", group, ports, want)
	}
	return err
}

// offSwitch is nil when the switch delivers the group to no port.
func offSwitch(group netip.Addr) error {
	ports, err := switchPorts(group)
	if err == nil && len(ports) > 0 {
		err = fmt.Errorf("the switch still delivers %s to ports %q", group, ports)
	}
	return err
}

// leaveBound is how long the switch may take to be told of a leave and to act
// on it. Much less than the 260 s after which an entry expires: one that goes
// within it was left.
const leaveBound = time.Minute

// leftOnSwitch waits until the switch, having been told, delivers the group to
// no port.
func (c *cluster) leftOnSwitch(t *testing.T, group netip.Addr) {
	t.Helper()
	c.within(t, leaveBound, "the switch to see the leave", func() error { return offSwitch(group) })
}

// forgetOnSwitch takes away an entry, if there is one, whose interface went
// without a leave.
func forgetOnSwitch(t *testing.T, group netip.Addr) {
	t.Helper()
	if offSwitch(group) != nil {
		run(t, "bridge", "-n", "switch", "mdb", "del", "dev", "br0", "port", podPort, "grp", group.String(), "temp")
	}
}

// mdbLog is what `bridge monitor` has written since it was made.
type mdbLog struct {
	path string
	from int64
}

// startSwitchMonitor has every change of the switch's database written down.
func (c *cluster) startSwitchMonitor(t *testing.T) {
	t.Helper()
	// Into a file, bridge would write by the block.
	c.monitor = c.startProcess(t, "switch", "stdbuf", "-oL", "bridge", "-n", "switch", "-timestamp", "monitor", "mdb")
}

// switchLogFromNow is what the switch will do from now on.
func (c *cluster) switchLogFromNow(t *testing.T) mdbLog {
	t.Helper()
	info, err := os.Stat(c.monitor.log)
	if err != nil {
		t.Fatal(err)
	}
	return mdbLog{path: c.monitor.log, from: info.Size()}
}

// deletions are the lines on entries of the group on the pods' port that were
// taken away; on the other, mckey comes and goes.
func (l mdbLog) deletions(group netip.Addr) ([]string, error) {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text[l.from:])) {
		if strings.Contains(line, "Deleted ") && strings.Contains(line, " port "+podPort+" grp "+group.String()+" ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, nil
}
