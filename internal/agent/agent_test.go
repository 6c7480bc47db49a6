package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/agent"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const (
	orders = "239.1.1.7"
	quotes = "239.1.1.8"
)

// The order in which a group and a pod that asks for it come makes no
// difference.
func TestGroupAndPodInBothOrders(t *testing.T) {
	for _, groupFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("group first %v", groupFirst), func(t *testing.T) {
			w := newWorld(t)
			w.start()
			var p *testPod
			if groupFirst {
				w.group("orders", orders)
				p = w.pod("app", "orders")
			} else {
				p = w.pod("app", "orders")
				p.wantCondition(corev1.ConditionFalse, "UnknownGroup", w.namespace+"/orders")
				w.group("orders", orders)
			}
			p.wantJoined(orders)
			w.wantEntries("orders 1/1")

			_, statuses, err := p.get()
			if err != nil {
				t.Fatal(err)
			}
			if len(statuses) != 1 {
				t.Fatalf("group-status has %d elements: %+v", len(statuses), statuses)
			}
			s := statuses[0]
			if s.Group != w.namespace+"/orders" || s.State != v1alpha1.StateJoined || s.Interface != "net1" || s.Device != "rxe0" || s.Port != 1 ||
				s.MGID != "::ffff:"+orders || s.QKey != 0x01234567 || s.GIDIndex == nil || s.GID == "" || s.Epoch < 1 {
				t.Errorf("group-status is %+v", s)
			}

			p.stop()
			w.wantNoMembers()
			w.wantEntries()
			p.wantCondition(corev1.ConditionFalse, "SandboxEnded")
			if _, statuses, _ := p.get(); len(statuses) != 0 {
				t.Errorf("group-status after the end is %+v", statuses)
			}
		})
	}
}

// The node's object tells of the node, its devices, and that it is simulated.
func TestNodeObject(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	var node corev1.Node
	if err := cluster.admin.Get(t.Context(), client.ObjectKey{Name: w.node}, &node); err != nil {
		t.Fatal(err)
	}
	w.eventually("the node object is complete", func() error {
		n, err := w.multicastNode()
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionRDMAReady)
		if n.Status.NodeUID != node.UID || n.Status.BootID != "boot-"+w.node || ready == nil || ready.Reason != v1alpha1.ReasonSimulated {
			return fmt.Errorf("it is %+v", n.Status)
		}
		if len(n.Status.Devices) != 1 || n.Status.Devices[0].Name != "rxe0" || !slices.Equal(n.Status.Devices[0].Interfaces, []string{"eth1"}) {
			return fmt.Errorf("its devices are %+v", n.Status.Devices)
		}
		return nil
	})

	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: systemNamespace, Name: v1alpha1.LeaseNamePrefix + w.node}
	w.eventually("the lease is there", func() error { return cluster.admin.Get(t.Context(), key, lease) })
	first := lease.Spec.RenewTime.Time
	if *lease.Spec.LeaseDurationSeconds != 3 {
		t.Errorf("lease lasts %d s", *lease.Spec.LeaseDurationSeconds)
	}
	w.eventually("the lease is renewed", func() error {
		if err := cluster.admin.Get(t.Context(), key, lease); err != nil {
			return err
		}
		if !lease.Spec.RenewTime.After(first) {
			return errors.New("it isn't")
		}
		return nil
	})
	stop()
	if err := cluster.admin.Get(t.Context(), key, lease); err != nil {
		t.Errorf("the lease after the agent's end: %v", err)
	}
}

// A pod's own namespace may ask, another only where it is allowed; an edit of
// the group is followed without touching the pod.
func TestForeignNamespace(t *testing.T) {
	w := newWorld(t)
	w.start()
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "foreign-"}}
	w.create(foreign)
	g := w.group("orders", orders)
	p := w.pod("app", w.namespace+"/orders", func(p *corev1.Pod) { p.Namespace = foreign.Name })
	p.wantCondition(corev1.ConditionFalse, "NotAllowed", w.namespace+"/orders")
	p.wantEvents("NotAllowed", 1)

	g.Spec.AllowedNamespaces = []string{foreign.Name}
	if err := cluster.admin.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	w.accept(g)
	p.wantJoined(orders)
	p.wantEvents("GroupsJoined", 1)
}

// What a pod asks for is followed while it runs, and what an edit doesn't
// touch stays joined.
func TestAnnotationIsEdited(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.group("orders", orders)
	w.group("quotes", quotes)
	p := w.pod("app", "orders")
	p.wantJoined(orders)

	edit := func(annotation string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.GroupsAnnotation, annotation))
		if err := cluster.admin.Patch(t.Context(), p.DeepCopy(), patch); err != nil {
			t.Fatal(err)
		}
	}
	edit("orders, quotes")
	p.wantJoined(orders, quotes)
	edit("quotes")
	w.eventually("orders is left", func() error {
		if n := p.igmp(orders); n != 0 {
			return fmt.Errorf("count %d", n)
		}
		return nil
	})
	p.wantJoined(quotes)
	edit("")
	w.wantNoMembers()
	p.wantCondition(corev1.ConditionTrue, "AllJoined", "no group")
	w.wantEntries()

	// The condition comes first; what is being left is told until it is left.
	w.eventually("group-status of a pod that asks for nothing is empty", func() error {
		_, statuses, err := p.get()
		if err == nil && len(statuses) != 0 {
			err = fmt.Errorf("%+v", statuses)
		}
		return err
	})
}

// A pod that waits for its interface is wanted all the same: the group isn't
// one without members.
func TestInterfaceGoesAndComes(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.group("orders", orders)
	p := w.pod("app", "orders")
	p.wantJoined(orders)
	w.wantEntries("orders 1/1")
	epoch := p.epoch()

	w.machine.DeleteInterface(p.netns, "net1")
	p.wantCondition(corev1.ConditionFalse, "InterfacesUnknown")
	w.wantEntries("orders 0/1")

	w.machine.AddMACVLAN(p.netns, "net1", "eth1", netip.MustParsePrefix("192.0.2.99/24"))
	p.wantJoined(orders)
	w.wantEntries("orders 1/1")
	if now := p.epoch(); now <= epoch {
		t.Errorf("epoch %d after the interface came back, %d before", now, epoch)
	}
}

// A group that is edited isn't left and joined anew while the controller
// judges its new generation.
func TestEditedGroupStaysJoined(t *testing.T) {
	w := newWorld(t)
	w.start()
	g := w.group("orders", orders)
	p := w.pod("app", "orders")
	p.wantJoined(orders)
	epoch := p.epoch()
	g.Spec.AllowedNamespaces = []string{"elsewhere"}
	if err := cluster.admin.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	// Another group, seen after the edit, shows that the edit has been seen.
	w.group("quotes", quotes)
	w.pod("other", "quotes").wantJoined(quotes)
	p.wantJoined(orders)
	w.accept(g)
	w.eventually("the entry has the new generation", func() error {
		n, err := w.multicastNode()
		if err != nil {
			return err
		}
		for _, e := range n.Status.Groups {
			if e.UID == g.UID && e.Generation == g.Generation {
				return nil
			}
		}
		return fmt.Errorf("entries are %+v", n.Status.Groups)
	})
	if after := p.epoch(); after != epoch {
		t.Errorf("epoch %d, before the edit %d: it was joined again", after, epoch)
	}
}

// Two pods on the node's own interface share a membership; the second keeps it.
func TestHostNetworkPodsShare(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.group("orders", orders)
	host := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	a, b := w.pod("a", "orders", host), w.pod("b", "orders", host)
	a.wantJoined(orders)
	b.wantJoined(orders)
	w.wantEntries("orders 2/2")
	if n := a.igmp(orders); n != 1 {
		t.Errorf("joined %d times on one interface", n)
	}
	a.stop()
	a.wantCondition(corev1.ConditionFalse, "SandboxEnded")
	w.wantEntries("orders 1/1")
	b.wantJoined(orders)
	b.stop()
	w.wantNoMembers()
	w.wantEntries()
}

// A deleted group is left under a running pod, which is told by an event; one
// of the same name is joined again without touching the pod.
func TestGroupDeletedAndMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.start()
	g := w.group("orders", orders)
	w.group("quotes", quotes)
	p := w.pod("app", "orders,quotes")
	p.wantJoined(orders, quotes)

	w.delete(g)
	p.wantCondition(corev1.ConditionFalse, "UnknownGroup", w.namespace+"/orders")
	notes := p.wantEvents("GroupDeleted", 1)
	if len(notes) == 1 && !strings.Contains(notes[0], w.namespace+"/orders") {
		t.Errorf("event says %q", notes[0])
	}
	if p.igmp(orders) != 0 || p.igmp(quotes) != 1 {
		t.Errorf("the node holds %v", w.machine.Memberships())
	}
	w.wantEntries("quotes 1/1")

	w.group("orders", orders)
	p.wantJoined(orders, quotes)
	w.wantEntries("orders 1/1", "quotes 1/1")
}

// With NRI a pod has been left by the time that the runtime takes its network
// away.
func TestNRILeavesBeforeTheNetworkGoes(t *testing.T) {
	w := newWorld(t)
	socket := filepath.Join(w.dir, "nri.sock")
	if err := w.runtime.StartNRI(socket); err != nil {
		t.Fatal(err)
	}
	w.start(func(o *agent.Options) { o.NRISocket = socket; o.CRIPollInterval = time.Hour })
	w.group("orders", orders)
	w.eventually("the one poll of CRI is over", func() error {
		if w.runtime.Lists() == 0 {
			return errors.New("it isn't")
		}
		return nil
	})
	const watches = 2 // of the devices, and of the node's own links
	w.eventually("the node is watched", func() error {
		if n := w.machine.OpenWatches(); n != watches {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	p := w.pod("app", "orders")
	p.wantJoined(orders)
	if n := w.machine.OpenWatches(); n != watches+1 {
		t.Errorf("%d watches with the pod, %d before: want one of its links", n, watches)
	}
	if err := w.runtime.StopSandbox(p.sandbox); err != nil {
		t.Fatal(err)
	}
	if n := p.igmp(orders); n != 0 {
		t.Errorf("joined %d times when the runtime takes the network away", n)
	}
	if n := w.machine.OpenWatches(); n != watches {
		t.Errorf("%d watches when the runtime takes the network away, %d before the pod: its namespace is kept alive", n, watches)
	}
	p.wantCondition(corev1.ConditionFalse, "SandboxEnded")
}

// Without the module the agent stays up, says what is wrong, and joins as soon
// as it is there.
func TestModuleNotLoaded(t *testing.T) {
	w := newWorld(t)
	if err := w.machine.UnloadUCM(); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.group("orders", orders)
	p := w.pod("app", "orders")
	w.eventually("the node object says so", func() error {
		n, err := w.multicastNode()
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionRDMAReady)
		if c == nil || c.Reason != v1alpha1.ReasonModuleNotLoaded || !strings.Contains(c.Message, "modprobe rdma_ucm") {
			return fmt.Errorf("condition is %+v", c)
		}
		return nil
	})
	w.eventually("the pod is told", func() error {
		c, _, err := p.get()
		if err != nil {
			return err
		}
		if c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "rdma_ucm") {
			return fmt.Errorf("condition is %+v", c)
		}
		return nil
	})
	w.machine.LoadUCM()
	p.wantJoined(orders)
	w.eventually("the node object says so", func() error {
		n, err := w.multicastNode()
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(n.Status.Conditions, v1alpha1.ConditionRDMAReady) {
			return fmt.Errorf("conditions are %+v", n.Status.Conditions)
		}
		return nil
	})
}

// A join that fails is told with the kernel's error, by one event, and by
// another when it has succeeded; the pod's other groups don't wait for it.
func TestJoinFailsAndRecovers(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.group("orders", orders)
	w.group("quotes", quotes)
	repair := w.machine.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Group: netip.MustParseAddr(orders), Err: syscall.EIO})
	p := w.pod("app", "orders,quotes")
	p.wantMember(quotes)
	p.wantCondition(corev1.ConditionFalse, "JoinFailed", w.namespace+"/orders", "net1", syscall.EIO.Error())
	p.wantEvents("JoinFailed", 1)
	w.eventually("the entry says why", func() error {
		n, err := w.multicastNode()
		if err != nil {
			return err
		}
		for _, e := range n.Status.Groups {
			if e.Name == "orders" && e.Failing == 1 && strings.Contains(e.Message, syscall.EIO.Error()) {
				return nil
			}
		}
		return fmt.Errorf("entries are %+v", n.Status.Groups)
	})
	repair()
	p.wantJoined(orders, quotes)
	p.wantEvents("GroupsJoined", 1)
	p.wantEvents("JoinFailed", 1)
}

// After a restart containerd doesn't tell of the stop of older sandboxes: an
// ending pod is left when its last container stops.
func TestOlderSandboxIsLeftWithItsLastContainer(t *testing.T) {
	w := newWorld(t)
	socket := filepath.Join(w.dir, "nri.sock")
	if err := w.runtime.StartNRI(socket); err != nil {
		t.Fatal(err)
	}
	w.group("orders", orders)
	p, other := w.pod("app", "orders"), w.pod("other", "orders")
	for _, pod := range []*testPod{p, other} {
		if err := w.runtime.StartContainer(pod.sandbox, pod.sandbox+"-c"); err != nil {
			t.Fatal(err)
		}
	}
	w.start(func(o *agent.Options) { o.NRISocket = socket; o.CRIPollInterval = time.Hour })
	p.wantJoined(orders)
	other.wantJoined(orders)
	if err := cluster.admin.Delete(t.Context(), p.DeepCopy(), client.GracePeriodSeconds(300)); err != nil {
		t.Fatal(err)
	}
	w.pod("later", "orders").wantJoined(orders) // so the deletion has been seen
	if p.igmp(orders) != 1 {
		t.Error("left during the grace period")
	}
	for _, pod := range []*testPod{p, other} {
		if err := w.runtime.StopContainer(pod.sandbox, pod.sandbox+"-c"); err != nil {
			t.Fatal(err)
		}
	}
	if p.igmp(orders) != 0 {
		t.Error("an ending pod whose last container has stopped isn't left")
	}
	if other.igmp(orders) != 1 {
		t.Error("a pod that isn't ending was left when its container stopped")
	}
	w.delete(p.Pod)
}

// A simulated NIC under real pods: their own network namespaces mean nothing
// to it, so all use the node's interface.
func TestNodeInterfacesOnly(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	w.start(func(o *agent.Options) { o.NodeInterfacesOnly, o.Metrics = true, registry })
	w.group("orders", orders)
	p := w.pod("app", "orders")
	p.wantCondition(corev1.ConditionTrue, "AllJoined")
	if n := w.machine.IGMP("", "eth1")[netip.MustParseAddr(orders)]; n != 1 || p.igmp(orders) != 0 {
		t.Errorf("the node holds %v", w.machine.Memberships())
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	simulated := false
	for _, f := range families {
		if f.GetName() == "rdma_multicast_agent_info" {
			simulated = f.GetMetric()[0].GetLabel()[0].GetValue() == "simulated"
		}
	}
	if !simulated {
		t.Error("no metric says that the fabric is simulated")
	}
}
