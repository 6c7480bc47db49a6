//go:build realkernel

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cleanUp deletes what a scenario has made, and holds that nothing remains of
// any membership: in the API, in the kernel, on the switch, in the agent.
func (c *cluster) cleanUp(t *testing.T) {
	t.Helper()
	c.deletePods(t)
	c.deleteGroups(t)
	c.podsGone(t)
	c.idleAgain(t)
	c.eventually(t, "the pods' network namespaces to be gone", func() error { return atMostNetNamespaces(c.netNamespaces) })
}

// deletePods deletes all pods and doesn't wait.
func (c *cluster) deletePods(t *testing.T) {
	t.Helper()
	for _, ns := range []string{namespace, otherNamespace} {
		err := c.client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(1))
		if err != nil {
			t.Errorf("delete all pods: %v", err)
		}
	}
}

// deleteGroups deletes all groups and waits until they are gone.
func (c *cluster) deleteGroups(t *testing.T) {
	t.Helper()
	for _, ns := range []string{namespace, otherNamespace} {
		err := c.client.DeleteAllOf(context.Background(), &v1alpha1.MulticastGroup{}, client.InNamespace(ns))
		if err != nil {
			t.Errorf("delete all groups: %v", err)
		}
	}
	c.eventually(t, "all groups to be gone", func() error {
		var groups v1alpha1.MulticastGroupList
		if err := c.client.List(context.Background(), &groups); err != nil {
			return err
		}
		for _, group := range groups.Items {
			return fmt.Errorf("group %s is still there: %+v", group.Name, group.Status)
		}
		return nil
	})
}

// podsGone waits until there is no pod, in the API and as a process.
func (c *cluster) podsGone(t *testing.T) {
	t.Helper()
	c.eventually(t, "all pods to be gone", func() error {
		var pods corev1.PodList
		if err := c.client.List(context.Background(), &pods); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			return fmt.Errorf("%d pods are still there, %s first", len(pods.Items), pod.Name)
		}
		return nil
	})
	c.eventually(t, "every pod's process to end", func() error {
		// The sandboxes' own process too: it is the same program.
		if pids := append(processWith("/pod"), processWith("/receiver")...); len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
}

var allHosts = netip.MustParseAddr("224.0.0.1")

// idleAgain waits until nothing is left of any membership.
func (c *cluster) idleAgain(t *testing.T) {
	t.Helper()
	c.entries(t, 0)
	c.eventually(t, "the agent to hold what it held before any membership", c.idle)
	for _, nic := range []string{senderNIC, podNIC} {
		c.eventually(t, "no membership on "+nic, func() error { return memberOnce(0, nic) })
	}
}

// idle is nil when the agent holds nothing of any membership.
func (c *cluster) idle() error {
	now, err := c.agentResources()
	if err == nil && now != c.held {
		err = fmt.Errorf("it holds %+v, before %+v", now, c.held)
	}
	return err
}

// settle waits until the agent holds the same for a second, and takes it for
// what it holds when idle.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	c.eventually(t, "the agent to settle", func() error {
		before, err := c.agentResources()
		if err != nil {
			return err
		}
		time.Sleep(time.Second)
		after, err := c.agentResources()
		if err == nil && (before != after || after.channels == 0) {
			err = fmt.Errorf("it held %+v, then %+v", before, after)
		}
		c.held = after
		return err
	})
}

// agentResources are what a forgotten membership would show in.
type agentResources struct {
	ids           int // of rdma_cm
	channels      int // open files on /dev/infiniband/rdma_cm
	netNamespaces int // open network namespaces
	strayThreads  int // threads in another network namespace than the agent's
}

// agentResources counts them in the kernel's tables.
func (c *cluster) agentResources() (agentResources, error) {
	var r agentResources
	pid := c.agent.cmd.Process.Pid
	files, err := links(pid, "fd")
	if err != nil {
		return r, err
	}
	for _, target := range files {
		switch {
		case target == "/dev/infiniband/rdma_cm":
			r.channels++
		case strings.HasPrefix(target, "net:[") || strings.Contains(target, "/netns/") || strings.HasSuffix(target, "/ns/net"):
			r.netNamespaces++
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/net", pid))
	if err != nil || len(threads) == 0 {
		return r, fmt.Errorf("the agent's threads: %w", errors.Join(err, c.ended()))
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return r, err
	}
	for _, thread := range threads {
		if in, err := os.Readlink(thread); err == nil && in != own {
			r.strayThreads++
		}
	}
	r.ids, err = idsOf(pid)
	return r, err
}

// links are where the links in a folder of a process point to, by their names.
func links(pid int, folder string) (map[string]string, error) {
	dir := fmt.Sprintf("/proc/%d/%s", pid, folder)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	targets := map[string]string{}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		targets[entry.Name()] = target
	}
	return targets, nil
}

// idsOf counts the rdma_cm ids of a process.
func idsOf(pid int) (int, error) {
	text, err := output("rdma", "-j", "resource", "show", "cm_id")
	if err != nil {
		return 0, err
	}
	var ids []struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(text), &ids); err != nil {
		return 0, fmt.Errorf("rdma resource show cm_id: %w: %q", err, text)
	}
	n := 0
	for _, id := range ids {
		if id.PID == pid {
			n++
		}
	}
	return n, nil
}

// belongings are what pods that have come and gone could leave behind.
type belongings struct {
	files   int // open in the agent, of any kind
	threads int // of the agent
	mounts  int // of network namespaces, in /run/netns
	gids    int // in the devices' tables: those of a forgotten interface too
}

// belongings counts them now.
func (c *cluster) belongings(t *testing.T) belongings {
	t.Helper()
	b, err := c.countBelongings()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (c *cluster) countBelongings() (belongings, error) {
	var b belongings
	pid := c.agent.cmd.Process.Pid
	for n, pattern := range map[*int]string{
		&b.files:   fmt.Sprintf("/proc/%d/fd/*", pid),
		&b.threads: fmt.Sprintf("/proc/%d/task/*", pid),
		&b.mounts:  "/run/netns/*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return b, err
		}
		*n = len(found)
	}
	for _, device := range []string{senderDevice, podDevice} {
		text, err := output("sh", "-c", fmt.Sprintf("cat /sys/class/infiniband/%s/ports/1/gids/*", device))
		if err != nil {
			return b, err
		}
		for gid := range strings.Lines(text) {
			if strings.Trim(gid, "0:\n") != "" {
				b.gids++
			}
		}
	}
	return b, nil
}

// atMostNetNamespaces is nil when no more than n network namespaces live in the
// kernel beside the first one. Those count too that nothing but a forgotten
// rdma_cm id keeps, which no list shows: the kernel's own count is held against
// its limit.
func atMostNetNamespaces(n int) error {
	const limit = "/proc/sys/user/max_net_namespaces"
	usual, err := os.ReadFile(limit)
	if err != nil {
		return err
	}
	if err := os.WriteFile(limit, []byte(strconv.Itoa(n+1)), 0); err != nil {
		return err
	}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its namespace
		made <- unix.Unshare(unix.CLONE_NEWNET)
	}()
	err = <-made
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("more than %d network namespaces live", n)
	}
	return errors.Join(err, os.WriteFile(limit, usual, 0))
}

// countNetNamespaces is how many there are.
func countNetNamespaces(t *testing.T) int {
	t.Helper()
	for n := range 100 {
		if atMostNetNamespaces(n) == nil {
			return n
		}
	}
	t.Fatalf("the network namespaces can't be counted: %v", atMostNetNamespaces(100))
	return 0
}
