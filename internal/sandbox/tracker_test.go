package sandbox_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rdma-multicast/rdma-multicast/internal/sandbox"
	"github.com/rdma-multicast/rdma-multicast/internal/sandbox/sandboxtest"
)

// node is a runtime and a tracker that follows it.
type node struct {
	*sandboxtest.Runtime
	*sandbox.Tracker
	dir string

	mu      sync.Mutex
	stopped []string
	blocked chan struct{} // Stopping waits for it where set
	changes int
}

type nodeOptions struct {
	nri, noCRI bool
	poll       time.Duration
	ending     func(namespace, name, uid string) bool
	block      bool
	before     func(*sandboxtest.Runtime)

	runtime, version string // of NRI; "": containerd's
	nodeNetNS        string
}

func startNode(t *testing.T, o nodeOptions) *node {
	t.Helper()
	dir := t.TempDir()
	runtime, err := sandboxtest.Start(filepath.Join(dir, "cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Close)
	n := &node{Runtime: runtime, dir: dir}
	if o.block {
		n.blocked = make(chan struct{})
	}
	if o.before != nil {
		o.before(runtime)
	}
	opts := sandbox.Options{
		PollInterval: o.poll,
		NodeNetNS:    o.nodeNetNS,
		Ending:       o.ending,
		Stopping: func(ctx context.Context, id string) {
			if n.blocked != nil {
				<-n.blocked
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.stopped = append(n.stopped, id)
		},
		Changed: func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.changes++
		},
	}
	if !o.noCRI {
		opts.CRIEndpoint = "unix://" + filepath.Join(dir, "cri.sock")
	}
	if o.nri {
		opts.NRISocket = n.nriSocket()
		start := func() error { return runtime.StartNRI(n.nriSocket()) }
		if o.runtime != "" {
			start = func() error { return runtime.StartNRIAs(n.nriSocket(), o.runtime, o.version) }
		}
		if err := start(); err != nil {
			t.Fatal(err)
		}
	}
	n.Tracker = sandbox.NewTracker(opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	if o.nri {
		eventually(t, "NRI connected", func() bool { _, err := n.Health(); return err == nil })
	}
	return n
}

func (n *node) nriSocket() string { return filepath.Join(n.dir, "nri.sock") }

func (n *node) liveIDs() []string {
	var ids []string
	live, _ := n.Sandboxes()
	for _, sb := range live {
		ids = append(ids, sb.ID)
	}
	slices.Sort(ids)
	return ids
}

func (n *node) stoppedIDs() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.stopped)
}

func (n *node) add(t *testing.T, id string) {
	t.Helper()
	if err := n.AddSandbox(sandboxtest.Sandbox{ID: id, PodUID: "uid-" + id, PodNamespace: "default", PodName: id, NetNS: "/run/netns/" + id}); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (n *node) wantLive(t *testing.T, ids ...string) {
	t.Helper()
	eventually(t, "live sandboxes "+strings.Join(ids, " "), func() bool { return slices.Equal(n.liveIDs(), ids) })
}

const fast = 5 * time.Millisecond

func TestPollFollowsSandboxes(t *testing.T) {
	n := startNode(t, nodeOptions{poll: fast, before: func(r *sandboxtest.Runtime) {
		err := r.AddSandbox(sandboxtest.Sandbox{
			ID: "a", PodUID: "u", PodNamespace: "ns", PodName: "pod", NetNS: "/run/netns/a",
			Annotations: map[string]string{"rdma-multicast.dev/groups": "market-data"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}})
	eventually(t, "synced", func() bool { _, synced := n.Sandboxes(); return synced })
	live, _ := n.Sandboxes() // synced: complete
	want := []sandbox.Sandbox{{
		ID: "a", PodUID: "u", PodNamespace: "ns", PodName: "pod", NetNS: "/run/netns/a",
		Annotations: map[string]string{"rdma-multicast.dev/groups": "market-data"},
	}}
	if diff := cmp.Diff(want, live, cmpopts.IgnoreFields(sandbox.Sandbox{}, "CreatedAt")); diff != "" {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}

	if err := n.AddSandbox(sandboxtest.Sandbox{ID: "host", PodUID: "h", PodNamespace: "ns", PodName: "host"}); err != nil {
		t.Fatal(err)
	}
	n.wantLive(t, "a", "host")
	live, _ = n.Sandboxes()
	if got := live[1]; got.ID != "host" || got.NetNS != "" {
		t.Errorf("host-network sandbox = %+v, want no namespace, and the oldest first", got)
	}

	n.KillSandbox("a")
	n.wantLive(t, "host")
	eventually(t, "Stopping called", func() bool { return slices.Equal(n.stoppedIDs(), []string{"a"}) })
	if err := n.StopSandbox("host"); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveSandbox("host"); err != nil {
		t.Fatal(err)
	}
	n.wantLive(t)
	eventually(t, "Stopping called", func() bool { return slices.Equal(n.stoppedIDs(), []string{"a", "host"}) })
	if got := n.Statuses("a"); got != 1 {
		t.Errorf("PodSandboxStatus was called %d times for one sandbox, want 1", got)
	}
}

func TestRuntimeAwayKeepsWhatIsKnown(t *testing.T) {
	n := startNode(t, nodeOptions{poll: fast})
	n.add(t, "a")
	n.wantLive(t, "a")
	n.Fail(errors.New("restarting"))
	eventually(t, "the failure is seen", func() bool { cri, _ := n.Health(); return cri != nil })
	before := n.Lists()
	eventually(t, "five more polls", func() bool { return n.Lists() > before+5 })
	if diff := cmp.Diff([]string{"a"}, n.liveIDs()); diff != "" {
		t.Errorf("live while the runtime is away (-want +got):\n%s", diff)
	}
	n.KillSandbox("a")
	n.Fail(nil)
	n.wantLive(t)
	if cri, _ := n.Health(); cri != nil {
		t.Errorf("Health = %v, want nil once the runtime answers", cri)
	}
}

func TestNoRuntimeIsNotSynced(t *testing.T) {
	tr := sandbox.NewTracker(sandbox.Options{CRIEndpoint: "unix:///nonexistent/cri.sock", PollInterval: fast})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	eventually(t, "the endpoint is named", func() bool {
		cri, _ := tr.Health()
		return cri != nil && strings.Contains(cri.Error(), "/nonexistent/cri.sock")
	})
	if _, synced := tr.Sandboxes(); synced {
		t.Error("synced without a runtime")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestBadEndpoint(t *testing.T) {
	err := sandbox.NewTracker(sandbox.Options{CRIEndpoint: "tcp://1.2.3.4:5"}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "unix://") {
		t.Errorf("Run = %v, want an error that says what is right", err)
	}
}

func TestUnreadableInfoHoldsUpNoOther(t *testing.T) {
	n := startNode(t, nodeOptions{poll: fast, before: func(r *sandboxtest.Runtime) { r.SetInfo("bad", "{") }})
	n.add(t, "bad")
	n.add(t, "good")
	n.wantLive(t, "good")
	eventually(t, "synced", func() bool { _, synced := n.Sandboxes(); return synced })
	eventually(t, "asked again", func() bool { return n.Statuses("bad") > 2 })
	n.SetInfo("bad", `{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"/run/netns/bad"}]}}}`)
	n.wantLive(t, "bad", "good")
}

func TestSandboxThatGoesWhileItIsInspected(t *testing.T) {
	n := startNode(t, nodeOptions{poll: fast})
	release := n.HoldStatuses()
	n.add(t, "a")
	eventually(t, "its status is under way", func() bool { return n.Statuses("a") > 0 })
	n.KillSandbox("a")
	before := n.Lists()
	eventually(t, "two more polls", func() bool { return n.Lists() > before+2 })
	release()
	n.add(t, "b")
	n.wantLive(t, "b")
	before = n.Lists()
	eventually(t, "three more polls", func() bool { return n.Lists() > before+3 })
	if got := n.stoppedIDs(); got != nil {
		t.Errorf("stopped = %v: what was never live can't stop", got)
	}
}

func TestNRITellsAtOnce(t *testing.T) {
	n := startNode(t, nodeOptions{nri: true, poll: time.Hour})
	eventually(t, "synced", func() bool { _, synced := n.Sandboxes(); return synced })
	n.add(t, "a")
	if diff := cmp.Diff([]string{"a"}, n.liveIDs()); diff != "" {
		t.Fatalf("live once RunPodSandbox has returned (-want +got):\n%s", diff)
	}
	if live, _ := n.Sandboxes(); live[0].NetNS != "/run/netns/a" {
		t.Errorf("namespace = %q", live[0].NetNS)
	}
	if err := n.AddSandbox(sandboxtest.Sandbox{ID: "host", PodUID: "h", PodNamespace: "ns", PodName: "host"}); err != nil {
		t.Fatal(err)
	}
	if live, _ := n.Sandboxes(); len(live) != 2 || live[1].NetNS != "" {
		t.Errorf("sandboxes = %+v, want the second without a namespace", live)
	}
	if err := n.StopSandbox("a"); err != nil {
		t.Fatal(err)
	}
	if got := n.stoppedIDs(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("Stopping was called for %v when StopPodSandbox returned, want a: the network goes next", got)
	}
	if diff := cmp.Diff([]string{"host"}, n.liveIDs()); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
}

func TestStoppedSandboxStaysStoppedWhateverALateListSays(t *testing.T) {
	n := startNode(t, nodeOptions{nri: true, poll: fast})
	n.add(t, "a")
	release := n.HoldLists()
	before := n.Lists()
	eventually(t, "a list with a in it is under way", func() bool { return n.Lists() > before })
	if err := n.StopSandbox("a"); err != nil {
		t.Fatal(err)
	}
	release()
	before = n.Lists()
	eventually(t, "three more polls", func() bool {
		if ids := n.liveIDs(); len(ids) != 0 {
			t.Fatalf("live = %v after its stop", ids)
		}
		return n.Lists() > before+3
	})
	if got := n.stoppedIDs(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("Stopping was called for %v, want a, once", got)
	}
}

func TestHookIsBounded(t *testing.T) {
	n := startNode(t, nodeOptions{nri: true, poll: time.Hour, block: true})
	n.add(t, "a")
	began := time.Now()
	if err := n.StopSandbox("a"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < sandbox.HookLimit/2 || took > 4*sandbox.HookLimit {
		t.Errorf("StopPodSandbox took %s with a Stopping that hangs, want about %s", took, sandbox.HookLimit)
	}
	close(n.blocked)
	eventually(t, "Stopping has ended", func() bool { return slices.Equal(n.stoppedIDs(), []string{"a"}) })
}

func TestHookWaitsForTheLeaveThatThePollBegan(t *testing.T) {
	n := startNode(t, nodeOptions{nri: true, poll: fast, block: true})
	n.add(t, "a")
	before := n.Lists()
	eventually(t, "CRI has listed it", func() bool { return n.Lists() > before+2 })
	n.KillSandbox("a") // containerd: not ready before the hook is called
	n.wantLive(t)
	if got := n.stoppedIDs(); got != nil {
		t.Fatalf("stopped = %v, want Stopping to be under way", got)
	}
	time.AfterFunc(50*time.Millisecond, func() { close(n.blocked) })
	if err := n.StopHook("a"); err != nil {
		t.Fatal(err)
	}
	if got := n.stoppedIDs(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the hook returned with Stopping finished for %v, want a", got)
	}
}

func TestNRIComesBack(t *testing.T) {
	n := startNode(t, nodeOptions{nri: true, poll: time.Hour})
	for range 3 {
		n.StopNRI()
		eventually(t, "the loss is seen", func() bool { _, nri := n.Health(); return nri != nil })
		if err := n.StartNRI(n.nriSocket()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "connected again", func() bool { _, nri := n.Health(); return nri == nil })
	}
	n.add(t, "a")
	n.wantLive(t, "a")
}

func TestNRIAlone(t *testing.T) {
	n := startNode(t, nodeOptions{nri: true, noCRI: true, before: func(r *sandboxtest.Runtime) {
		for _, id := range []string{"a", "b"} {
			if err := r.AddSandbox(sandboxtest.Sandbox{ID: id, NetNS: "/run/netns/" + id}); err != nil {
				t.Fatal(err)
			}
		}
		r.KillSandbox("b")
	}})
	n.wantLive(t, "a")
	if _, synced := n.Sandboxes(); !synced {
		t.Error("not synced after Synchronize")
	}
	n.StopNRI()
	eventually(t, "the loss is seen", func() bool { _, nri := n.Health(); return nri != nil })
	if diff := cmp.Diff([]string{"a"}, n.liveIDs()); diff != "" {
		t.Errorf("live while the runtime is away (-want +got):\n%s", diff)
	}
	if err := n.StopSandbox("a"); err != nil {
		t.Fatal(err)
	}
	if err := n.RemoveSandbox("a"); err != nil {
		t.Fatal(err)
	}
	if err := n.StartNRI(n.nriSocket()); err != nil {
		t.Fatal(err)
	}
	n.wantLive(t)
	eventually(t, "Stopping called", func() bool { return slices.Equal(n.stoppedIDs(), []string{"a"}) })
}

func TestLastContainerOfAnEndingPod(t *testing.T) {
	var mu sync.Mutex
	var ending bool
	n := startNode(t, nodeOptions{nri: true, poll: time.Hour,
		ending: func(namespace, name, uid string) bool {
			mu.Lock()
			defer mu.Unlock()
			return ending && namespace == "default" && uid == "uid-"+name
		},
	})
	n.add(t, "old")
	for _, c := range []string{"c1", "c2"} {
		if err := n.StartContainer("old", c); err != nil {
			t.Fatal(err)
		}
	}
	n.StopNRI() // the runtime restarts: no StopPodSandbox will come for this one
	eventually(t, "the loss is seen", func() bool { _, nri := n.Health(); return nri != nil })
	if err := n.StartNRI(n.nriSocket()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "connected again", func() bool { _, nri := n.Health(); return nri == nil })
	n.add(t, "new")
	if err := n.StartContainer("new", "c3"); err != nil {
		t.Fatal(err)
	}

	stop := func(sandbox, container string) {
		t.Helper()
		if err := n.StopContainer(sandbox, container); err != nil {
			t.Fatal(err)
		}
	}
	stop("old", "c1") // a crash
	if err := n.StartContainer("old", "c1"); err != nil {
		t.Fatal(err)
	}
	stop("old", "c2")
	stop("old", "c1") // both crashed, the pod isn't ending
	n.wantLive(t, "new", "old")
	for _, c := range []string{"c1", "c2"} {
		if err := n.StartContainer("old", c); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	ending = true
	mu.Unlock()
	stop("old", "c1")
	n.wantLive(t, "new", "old")
	stop("new", "c3") // StopPodSandbox will come for this one
	n.wantLive(t, "new", "old")
	stop("old", "c2")
	if got := n.stoppedIDs(); !slices.Equal(got, []string{"old"}) {
		t.Errorf("Stopping was called for %v when the last StopContainer returned, want old", got)
	}
	n.wantLive(t, "new")
}
