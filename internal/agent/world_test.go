package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/agent"
	"github.com/rdma-multicast/rdma-multicast/internal/sandbox/sandboxtest"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// eventBound is how long a test waits for what should happen in well under a
// second, on a machine that is busy with other things.
const eventBound = 60 * time.Second

// world is one node with its agent: a real API server, a simulated machine, a
// runtime without containers.
type world struct {
	t         *testing.T
	node      string
	namespace string
	fabric    *rdmatest.Fabric
	machine   *rdmatest.Node
	runtime   *sandboxtest.Runtime
	network   *network
	dir       string
	pods      int
}

// newWorld makes a node. When the test has ended, nothing of the agent may be
// left: no handle in the machine's kernel, no goroutine.
func newWorld(t *testing.T) *world {
	t.Helper()
	before := goleak.IgnoreCurrent()
	w := &world{t: t, network: &network{}}
	var err error
	//nolint:usetesting // a socket's path is limited to 107 bytes, which TMPDIR and the test's name may exceed
	if w.dir, err = os.MkdirTemp("/tmp", "agent-"); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-"}}
	w.create(namespace)
	w.namespace, w.node = namespace.Name, namespace.Name
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}})
	w.fabric = rdmatest.NewFabric()
	w.machine = w.fabric.AddNode(w.node)
	w.machine.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
	if w.runtime, err = sandboxtest.Start(filepath.Join(w.dir, "cri.sock")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.runtime.Close()
		w.network.cut()
		_ = os.RemoveAll(w.dir)
		if files, ids, namespaces := w.machine.OpenHandles(); files+ids+namespaces > 0 {
			t.Errorf("left open in the kernel: %d files, %d ids, %d namespaces", files, ids, namespaces)
		}
		if watches := w.machine.OpenWatches(); watches > 0 {
			t.Errorf("left open in the kernel: %d watches", watches)
		}
		if left := w.machine.Memberships(); len(left) > 0 {
			t.Errorf("memberships left: %v", left)
		}
		goleak.VerifyNone(t, before,
			// A watch of metadata that is stopped while an event is on its way keeps
			// this goroutine: apimachinery's, once for each agent that ends.
			goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
	})
	return w
}

// start runs an agent until stop, or the test's end.
func (w *world) start(change ...func(*agent.Options)) (stop func()) {
	w.t.Helper()
	o := agent.Options{
		Config:          w.network.config(),
		NodeName:        w.node,
		Namespace:       systemNamespace,
		BootID:          "boot-" + w.node,
		Host:            w.machine.Host(),
		Simulated:       true,
		CRIEndpoint:     "unix://" + filepath.Join(w.dir, "cri.sock"),
		LeaseDuration:   3 * time.Second,
		GatherInterval:  100 * time.Millisecond,
		EventDelay:      200 * time.Millisecond,
		CRIPollInterval: 100 * time.Millisecond,
		Log:             testr.NewWithOptions(w.t, testr.Options{}),
	}
	for _, c := range change {
		c(&o)
	}
	a, err := agent.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("agent: %v", err)
			}
		case <-time.After(eventBound):
			w.t.Error("agent doesn't end")
		}
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := cluster.admin.Create(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
}

// group applies a group, accepted as the controller would.
func (w *world) group(name, address string, change ...func(*v1alpha1.MulticastGroup)) *v1alpha1.MulticastGroup {
	w.t.Helper()
	g := &v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.MulticastGroupSpec{Address: address},
	}
	for _, c := range change {
		c(g)
	}
	w.create(g)
	w.accept(g)
	if g.Spec.Nodes != nil { // or the nodes of other tests were members too
		w.t.Cleanup(func() { w.delete(g) })
	}
	return g
}

func (w *world) accept(g *v1alpha1.MulticastGroup) {
	w.t.Helper()
	g.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
		ObservedGeneration: g.Generation, LastTransitionTime: metav1.Now(),
	}}
	if err := cluster.admin.Status().Update(context.Background(), g); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(object client.Object) {
	w.t.Helper()
	if err := cluster.admin.Delete(context.Background(), object, client.GracePeriodSeconds(0)); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// testPod is a pod with its sandbox and network.
type testPod struct {
	*corev1.Pod
	w       *world
	sandbox string
	netns   string // "" host network
}

// pod makes a pod's object and runs its sandbox: with a macvlan on the NIC,
// net1, and an interface that isn't RDMA-capable, eth0.
func (w *world) pod(name, groups string, change ...func(*corev1.Pod)) *testPod {
	w.t.Helper()
	p := w.podObject(name, groups, change...)
	p.run()
	return p
}

func (w *world) podObject(name, groups string, change ...func(*corev1.Pod)) *testPod {
	w.t.Helper()
	w.pods++
	p := &testPod{w: w, sandbox: fmt.Sprintf("%s-sandbox-%d", w.node, w.pods), Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: map[string]string{v1alpha1.GroupsAnnotation: groups}},
		Spec: corev1.PodSpec{
			NodeName:   w.node,
			Containers: []corev1.Container{{Name: "app", Image: "app"}},
		},
	}}
	for _, c := range change {
		c(p.Pod)
	}
	w.create(p.Pod)
	return p
}

// run makes the pod's network and runs its sandbox.
func (p *testPod) run() {
	p.w.t.Helper()
	if !p.Spec.HostNetwork {
		p.netns = "/run/netns/" + p.sandbox
		p.w.machine.AddNetNS(p.netns)
		p.w.machine.AddMACVLAN(p.netns, "net1", "eth1", netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + p.w.pods)}), 24))
		p.w.machine.AddPlainInterface(p.netns, "eth0", netip.MustParsePrefix("10.0.0.9/24"))
	}
	err := p.w.runtime.AddSandbox(sandboxtest.Sandbox{ID: p.sandbox, PodUID: string(p.UID), PodNamespace: p.Namespace, PodName: p.Name,
		NetNS: p.netns, Annotations: p.Annotations})
	if err != nil {
		p.w.t.Fatal(err)
	}
	p.w.t.Cleanup(p.stop)
}

// stop stops the sandbox, then its network goes, as in containerd.
func (p *testPod) stop() {
	p.w.t.Helper()
	if err := p.w.runtime.StopSandbox(p.sandbox); err != nil {
		p.w.t.Error(err)
	}
	if p.netns != "" && p.w.machine.IGMP(p.netns, "net1") != nil {
		p.w.machine.DeleteNetNS(p.netns)
	}
}

// igmp is the count of a group on the pod's interface.
func (p *testPod) igmp(group string) int {
	if p.netns == "" {
		return p.w.machine.IGMP("", "eth1")[netip.MustParseAddr(group)]
	}
	return p.w.machine.IGMP(p.netns, "net1")[netip.MustParseAddr(group)]
}

// get reads the pod anew: its condition and its group-status.
func (p *testPod) get() (corev1.PodCondition, []v1alpha1.MembershipStatus, error) {
	var pod corev1.Pod
	if err := cluster.admin.Get(context.Background(), client.ObjectKeyFromObject(p.Pod), &pod); err != nil {
		return corev1.PodCondition{}, nil, err
	}
	var statuses []v1alpha1.MembershipStatus
	if text := pod.Annotations[v1alpha1.GroupStatusAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &statuses); err != nil {
			return corev1.PodCondition{}, nil, fmt.Errorf("group-status %q: %w", text, err)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1alpha1.ConditionGroupsJoined {
			return c, statuses, nil
		}
	}
	return corev1.PodCondition{}, statuses, errors.New("the pod has no condition GroupsJoined")
}

// epoch is that of the pod's only membership.
func (p *testPod) epoch() int64 {
	p.w.t.Helper()
	_, statuses, err := p.get()
	if err != nil || len(statuses) != 1 {
		p.w.t.Fatalf("group-status is %+v, %v: want one element", statuses, err)
	}
	return statuses[0].Epoch
}

// wantCondition waits for the condition's status, its reason, and parts of its
// message.
func (p *testPod) wantCondition(status corev1.ConditionStatus, reason string, parts ...string) {
	p.w.t.Helper()
	p.w.eventually(p.Name+" is answered", func() error {
		c, _, err := p.get()
		if err != nil {
			return err
		}
		if c.Status != status || c.Reason != reason {
			return fmt.Errorf("condition is %s %s: %s; want %s %s", c.Status, c.Reason, c.Message, status, reason)
		}
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return fmt.Errorf("condition's message %q doesn't say %q", c.Message, part)
			}
		}
		return nil
	})
}

// wantJoined waits until the pod's interface is a member of the groups and the
// pod is told so.
func (p *testPod) wantJoined(groups ...string) {
	p.w.t.Helper()
	p.wantMember(groups...)
	p.wantCondition(corev1.ConditionTrue, "AllJoined")
}

func (p *testPod) wantMember(groups ...string) {
	p.w.t.Helper()
	p.w.eventually(p.Name+" is a member", func() error {
		for _, g := range groups {
			if p.igmp(g) == 0 {
				return fmt.Errorf("%s isn't joined: the node holds %v", g, p.w.machine.Memberships())
			}
		}
		return nil
	})
}

// wantEvents waits for the number of events of a reason on the pod, and
// returns their notes.
func (p *testPod) wantEvents(reason string, number int) []string {
	p.w.t.Helper()
	var notes []string
	p.w.eventually(fmt.Sprintf("%d events %s", number, reason), func() error {
		var events eventsv1.EventList
		if err := cluster.admin.List(context.Background(), &events, client.InNamespace(p.Namespace)); err != nil {
			return err
		}
		notes = nil
		var others []string
		for _, e := range events.Items {
			if e.Regarding.UID != p.UID {
				continue
			}
			if e.Reason == reason {
				notes = append(notes, e.Note)
			} else {
				others = append(others, e.Reason+": "+e.Note)
			}
		}
		if len(notes) != number {
			return fmt.Errorf("%d events: %q, others %q", len(notes), notes, others)
		}
		return nil
	})
	return notes
}

// multicastNode reads the node's own object.
func (w *world) multicastNode() (*v1alpha1.MulticastNode, error) {
	var node v1alpha1.MulticastNode
	err := cluster.admin.Get(context.Background(), client.ObjectKey{Name: w.node}, &node)
	return &node, err
}

// wantEntries waits until the node's entries are of these groups, with these
// numbers: "name joined/members".
func (w *world) wantEntries(want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the node's entries are %q", want), func() error {
		node, err := w.multicastNode()
		if err != nil {
			return err
		}
		var got []string
		for _, g := range node.Status.Groups {
			got = append(got, fmt.Sprintf("%s %d/%d", g.Name, g.Joined, g.Members))
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
}

// wantNoMembers waits until the machine holds no membership.
func (w *world) wantNoMembers() {
	w.t.Helper()
	w.eventually("nothing is joined", func() error {
		if held := w.machine.Memberships(); len(held) > 0 {
			return fmt.Errorf("the node holds %v", held)
		}
		return nil
	})
}

// eventually waits until check succeeds.
func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	deadline := time.Now().Add(eventBound)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not within %v: %v", what, eventBound, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
