package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/internal/sandbox/sandboxtest"
)

// startCRIO is a node whose runtime calls itself as CRI-O does.
func startCRIO(t *testing.T, o nodeOptions) *node {
	t.Helper()
	o.nri, o.runtime, o.version = true, "cri-o", "1.34.11"
	return startNode(t, o)
}

// stopCRIO stops a sandbox in CRI-O's order: network, NRI's hook, not ready.
func (n *node) stopCRIO(t *testing.T, id string, teardown func()) {
	t.Helper()
	teardown()
	if err := n.StopHook(id); err != nil {
		t.Fatal(err)
	}
	n.KillSandbox(id)
}

func TestCRIOLeavesBeforeTheNetworkGoes(t *testing.T) {
	var ending atomic.Bool
	n := startCRIO(t, nodeOptions{poll: time.Hour, ending: func(_, name, _ string) bool { return ending.Load() && name == "a" }})
	for _, id := range []string{"a", "b"} {
		n.add(t, id)
		for _, c := range []string{"1", "2"} {
			if err := n.StartContainer(id, id+c); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop := func(sandbox, container string) {
		t.Helper()
		if err := n.StopContainer(sandbox, container); err != nil {
			t.Fatal(err)
		}
	}
	stop("a", "a1")
	stop("a", "a2") // both have crashed; the pod isn't ending
	n.wantLive(t, "a", "b")
	for _, c := range []string{"a1", "a2"} {
		if err := n.StartContainer("a", c); err != nil {
			t.Fatal(err)
		}
	}
	ending.Store(true)
	stop("a", "a1")
	n.wantLive(t, "a", "b")
	stop("a", "a2")
	n.stopCRIO(t, "a", func() {
		if got := n.stoppedIDs(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("when the network goes Stopping has been called for %v, want a", got)
		}
	})
	stop("b", "b1")
	stop("b", "b2")
	n.wantLive(t, "b") // its pod isn't ending, as far as is known
	n.stopCRIO(t, "b", func() {})
	if got := n.stoppedIDs(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("Stopping was called for %v, want a and b, once each", got)
	}
}

func TestCRIOPinsTheHostsNamespaceForAPod(t *testing.T) {
	pinned := fmt.Sprintf("/proc/%d/ns/net", os.Getpid()) // this process's own, under another name
	for _, nri := range []bool{true, false} {
		t.Run(fmt.Sprintf("nri=%v", nri), func(t *testing.T) {
			poll := fast
			if nri {
				poll = time.Hour
			}
			n := startNode(t, nodeOptions{nri: nri, runtime: "cri-o", version: "1.34.11", poll: poll})
			if err := n.AddSandbox(sandboxtest.Sandbox{ID: "host", PodName: "host", NetNS: pinned}); err != nil {
				t.Fatal(err)
			}
			n.wantLive(t, "host")
			if live, _ := n.Sandboxes(); live[0].NetNS != "" {
				t.Errorf("namespace %q, want none: it is the host's", live[0].NetNS)
			}
		})
	}
	n := startNode(t, nodeOptions{poll: fast, nodeNetNS: "/proc/self/ns/mnt"})
	if err := n.AddSandbox(sandboxtest.Sandbox{ID: "own", PodName: "own", NetNS: pinned}); err != nil {
		t.Fatal(err)
	}
	n.wantLive(t, "own")
	if live, _ := n.Sandboxes(); live[0].NetNS != pinned {
		t.Errorf("namespace %q, want %q: it isn't the node's", live[0].NetNS, pinned)
	}
}

func TestCRIOVerboseStatusThroughThePoll(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "cri-o-1.34", "pod.json"))
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, nodeOptions{poll: fast, before: func(r *sandboxtest.Runtime) { r.SetInfo("a", string(text)) }})
	n.add(t, "a")
	n.wantLive(t, "a")
	live, _ := n.Sandboxes()
	if want := "/var/run/netns/0f4d6f4c-7a38-4be1-8d0f-52c7a4d1c2b6"; live[0].NetNS != want {
		t.Errorf("namespace %q, want %q", live[0].NetNS, want)
	}
}
