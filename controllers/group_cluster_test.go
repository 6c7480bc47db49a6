package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/controllers"
)

// quick is a budget that doesn't slow a test down.
var quick = controllers.ClusterOptions{WritesPerSecond: 100, WriteBurst: 100}

// All of it against one real kube-apiserver, one controller at a time.
func TestCluster(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"a group is accepted, with its finalizer on", testAccepted},
		{"an edited generation is accepted anew", testEdited},
		{"two groups of one address", testAddressConflict},
		{"an address and the MGID that it is mapped to", testMGIDConflict},
		{"a group that is held off holds nobody off", testConflictChain},
		{"groups of one address made at once", testConflictRace},
		{"groups of one address while one is being accepted", testConflictInFlight},
		{"groups of one Ethernet address", testEthernetAddress},
		{"sums and reasons", testSums},
		{"sums are written within the budget", testBudget},
		{"deletion waits for nodes and names them", testDeletionWaits},
		{"deletion doesn't believe a stale cache", testDeletionStaleCache},
		{"deletion while the controller is away", testDeletionWhileAway},
		{"deletion against a busy writer", testDeletionBusyWriter},
		{"a hundred groups deleted at once", testBulkDeletion},
		{"a node that is gone holds a group until its agent's Lease expires", testGoneNode},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

func testAccepted(t *testing.T, w *world) {
	ns := w.namespace(t)
	watcher, err := w.client.Watch(t.Context(), &v1alpha1.MulticastGroupList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	w.start(t, quick)
	g := w.create(t, ns, "g", "239.1.1.7")

	timeout := time.After(patience)
	for accepted := false; !accepted; {
		select {
		case e := <-watcher.ResultChan():
			got, ok := e.Object.(*v1alpha1.MulticastGroup)
			if !ok || e.Type == watch.Deleted {
				t.Fatalf("watch brought %+v", e)
			}
			accepted = meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionAccepted)
			if accepted && !slices.Contains(got.Finalizers, v1alpha1.GroupFinalizer) {
				t.Fatalf("accepted without its finalizer: %+v", got)
			}
		case <-timeout:
			t.Fatal("never accepted")
		}
	}
	got := w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonNoMembers)
	if diff := cmp.Diff(&v1alpha1.NodeCounts{Summary: "0/0"}, got.Status.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if note := w.event(t, g, v1alpha1.ReasonAccepted); !strings.Contains(note, "239.1.1.7") {
		t.Errorf("event says %q", note)
	}
	w.delete(t, g)
	w.gone(t, g)
}

func testEdited(t *testing.T, w *world) {
	w.start(t, quick)
	g := w.accepted(t, w.create(t, w.namespace(t), "g", "239.1.1.7"))
	g.Spec.AllowedNamespaces = []string{"*"}
	if err := w.client.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if got := w.accepted(t, g); got.Generation != 2 {
		t.Errorf("generation %d", got.Generation)
	}
}

func testAddressConflict(t *testing.T, w *world) {
	w.start(t, quick)
	w.node(t, "conflict-1")
	first := w.accepted(t, w.create(t, w.namespace(t), "first", "239.1.1.7"))
	other := w.namespace(t)
	second := w.create(t, other, "second", "239.1.1.7")
	refused := w.condition(t, second, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
	if c := meta.FindStatusCondition(refused.Status.Conditions, v1alpha1.ConditionAccepted); !strings.Contains(c.Message, first.Namespace+"/first") {
		t.Errorf("message %q doesn't name the other group", c.Message)
	}
	w.condition(t, second, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNotAccepted)
	w.event(t, second, v1alpha1.ReasonAddressConflict)
	w.accepted(t, w.create(t, other, "third", "239.1.1.8")) // another address isn't held off

	// Being deleted, it still has the address while a node may be a member.
	w.entries(t, "conflict-1", entryOf(first, 1, 1, 0))
	w.condition(t, first, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllJoined)
	w.delete(t, first)
	eventually(t, "second is told that the first is being deleted", func() error {
		got := w.condition(t, second, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
		if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionAccepted); !strings.Contains(c.Message, "is being deleted") {
			return fmt.Errorf("message %q", c.Message)
		}
		return nil
	})
	w.still(t, first)
	w.entries(t, "conflict-1")
	w.gone(t, first)
	w.accepted(t, second)
	w.event(t, second, v1alpha1.ReasonAccepted)
}

func testSums(t *testing.T, w *world) {
	w.start(t, quick)
	nodes := []string{"sums-1", "sums-2", "sums-3"}
	for _, n := range nodes {
		w.node(t, n)
	}
	g := w.accepted(t, w.create(t, w.namespace(t), "g", "239.1.1.7"))
	want := func(reason, summary string) {
		t.Helper()
		status := metav1.ConditionFalse
		if reason == v1alpha1.ReasonAllJoined || reason == v1alpha1.ReasonNoMembers {
			status = metav1.ConditionTrue
		}
		eventually(t, reason+" "+summary, func() error {
			got := w.condition(t, g, v1alpha1.ConditionReady, status, reason)
			if got.Status.Nodes.Summary != summary {
				return fmt.Errorf("nodes %+v", got.Status.Nodes)
			}
			return nil
		})
	}
	w.entries(t, nodes[0], entryOf(g, 2, 0, 0))
	want(v1alpha1.ReasonJoining, "0/1")
	w.entries(t, nodes[0], entryOf(g, 2, 2, 0))
	want(v1alpha1.ReasonAllJoined, "1/1")
	failing := entryOf(g, 1, 0, 1)
	failing.Message = "join 239.1.1.7 on net1: no such device"
	w.entries(t, nodes[1], failing)
	w.entries(t, nodes[2], entryOf(g, 1, 1, 0))
	want(v1alpha1.ReasonSomeFailing, "2/3")
	got := w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSomeFailing)
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, "sums-2 ("+failing.Message+")") {
		t.Errorf("message %q doesn't say where and why", c.Message)
	}
	if diff := cmp.Diff(&v1alpha1.NodeCounts{Summary: "2/3", Desired: 3, Joined: 2, Failing: 1}, got.Status.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	w.entries(t, nodes[1])
	want(v1alpha1.ReasonAllJoined, "2/2")
	w.delete(t, &v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: nodes[2]}})
	want(v1alpha1.ReasonAllJoined, "1/1")
	w.entries(t, nodes[0])
	want(v1alpha1.ReasonNoMembers, "0/0")
}

// Many changes, few writes; and the last word is the truth.
func testBudget(t *testing.T, w *world) {
	tap, _ := w.start(t, controllers.ClusterOptions{WritesPerSecond: 2, WriteBurst: 1})
	w.node(t, "budget-1")
	ns := w.namespace(t)
	var groups []*v1alpha1.MulticastGroup
	for i := range 10 {
		groups = append(groups, w.accepted(t, w.create(t, ns, fmt.Sprintf("g%d", i), fmt.Sprintf("239.1.2.%d", i))))
	}
	before, start := tap.statusWrites(), time.Now()
	for round := range 30 {
		var entries []v1alpha1.NodeGroup
		for _, g := range groups {
			entries = append(entries, entryOf(g, int32(round+2), int32(round%2)+1, 0))
		}
		w.entries(t, "budget-1", entries...)
	}
	w.entries(t, "budget-1")
	for _, g := range groups {
		w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonNoMembers)
	}
	took := time.Since(start)
	if wrote, most := tap.statusWrites()-before, int(took.Seconds()*2)+2; wrote > most {
		t.Errorf("%d status writes in %v, want at most %d", wrote, took, most)
	}
	// Acceptance isn't under the budget: it goes on while sums wait for theirs.
	var entries []v1alpha1.NodeGroup
	for _, g := range groups {
		entries = append(entries, entryOf(g, 2, 2, 0))
	}
	w.entries(t, "budget-1", entries...)
	w.accepted(t, w.create(t, ns, "late", "239.1.2.100"))
	var list v1alpha1.MulticastGroupList
	if err := w.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Items, func(g v1alpha1.MulticastGroup) bool {
		return g.Name != "late" && g.Status.Nodes.Joined == 0
	}) {
		t.Error("all sums were written before the new group was accepted")
	}
}

func testDeletionWaits(t *testing.T, w *world) {
	w.start(t, quick)
	w.node(t, "waits-1")
	w.node(t, "waits-2")
	ns := w.namespace(t)
	g := w.accepted(t, w.create(t, ns, "g", "239.1.1.7"))
	w.entries(t, "waits-1", entryOf(g, 1, 1, 0))
	w.entries(t, "waits-2", entryOf(g, 0, 0, 0)) // without members: it is an entry all the same
	w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllJoined)
	w.delete(t, g)
	message := func(want string) {
		t.Helper()
		eventually(t, "Ready says "+want, func() error {
			got := w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonLeaving)
			if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, want) {
				return fmt.Errorf("message %q", c.Message)
			}
			return nil
		})
	}
	message("waiting for 2 nodes to leave: waits-1, waits-2")
	w.entries(t, "waits-1")
	message("waiting for 1 node to leave: waits-2")
	w.still(t, g)

	// Applied again under the same name, it is another group: the old entry
	// doesn't hold it, and the old one isn't let go by it.
	w.entries(t, "waits-2")
	w.gone(t, g)
	w.entries(t, "waits-2", entryOf(g, 1, 1, 0))
	again := w.accepted(t, w.create(t, ns, "g", "239.1.1.7"))
	w.delete(t, again)
	w.gone(t, again)
}

// An entry that the cache hasn't seen holds the group: only a LIST past the
// cache can tell.
func testDeletionStaleCache(t *testing.T, w *world) {
	tap, _ := w.start(t, quick)
	w.node(t, "stale-1")
	g := w.accepted(t, w.create(t, w.namespace(t), "g", "239.1.1.7"))
	w.entries(t, "stale-1")
	tap.stall()
	w.entries(t, "stale-1", entryOf(g, 1, 1, 0))
	w.delete(t, g)
	eventually(t, "two LISTs past the cache", func() error {
		if n := tap.nodeLists(); n < 2 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
	w.still(t, g)
	w.entries(t, "stale-1") // left; the cache still knows nothing
	w.gone(t, g)
}

func testDeletionWhileAway(t *testing.T, w *world) {
	_, stop := w.start(t, quick)
	w.node(t, "away-1")
	ns := w.namespace(t)
	g := w.accepted(t, w.create(t, ns, "g", "239.1.1.7"))
	free := w.accepted(t, w.create(t, ns, "free", "239.1.1.8"))
	w.entries(t, "away-1", entryOf(g, 1, 1, 0))
	stop()
	w.delete(t, g)
	w.delete(t, free)
	w.still(t, g)
	w.still(t, free)
	w.start(t, quick)
	w.gone(t, free)
	w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonLeaving)
	w.entries(t, "away-1")
	w.gone(t, g)
}

// Somebody who writes the object all the time doesn't keep it from going.
func testDeletionBusyWriter(t *testing.T, w *world) {
	w.start(t, quick)
	g := w.accepted(t, w.create(t, w.namespace(t), "g", "239.1.1.7"))
	done := make(chan int)
	go func() {
		for n := 0; ; n++ {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)
			if err := w.client.Patch(t.Context(), g.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
				done <- n
				return
			}
		}
	}()
	w.delete(t, g)
	w.gone(t, g)
	if n := <-done; n == 0 {
		t.Error("the busy writer never wrote")
	}
}

func testBulkDeletion(t *testing.T, w *world) {
	const count = 100
	tap, _ := w.start(t, quick)
	ns := w.namespace(t)
	var last *v1alpha1.MulticastGroup
	for i := range count {
		last = w.create(t, ns, fmt.Sprintf("g%d", i), fmt.Sprintf("239.1.3.%d", i))
	}
	w.accepted(t, last)
	before := tap.nodeLists()
	if err := w.client.DeleteAllOf(t.Context(), &v1alpha1.MulticastGroup{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all groups are gone", func() error {
		var list v1alpha1.MulticastGroupList
		if err := w.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d are left", len(list.Items))
		}
		return nil
	})
	if lists := tap.nodeLists() - before; lists == 0 || lists > count/2 {
		t.Errorf("%d LISTs of MulticastNodes for %d groups: one serves many", lists, count)
	}
}

func testGoneNode(t *testing.T, w *world) {
	w.start(t, quick)
	const name = "gone-1"
	node := w.node(t, name)
	seconds := int32(2)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: v1alpha1.LeaseNamePrefix + name},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds},
	}
	if err := w.client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	g := w.accepted(t, w.create(t, w.namespace(t), "g", "239.1.1.7"))
	w.entries(t, name, entryOf(g, 1, 1, 0))
	w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllJoined)

	// The Node is gone, its agent lives on and renews.
	w.delete(t, node)
	w.delete(t, g)
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(300 * time.Millisecond) {
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)} // its clock is behind
		if err := w.client.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	w.still(t, g)
	got := w.condition(t, g, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonLeaving)
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, name) {
		t.Errorf("message %q doesn't name the node", c.Message)
	}
	var mcn v1alpha1.MulticastNode
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, &mcn); err != nil {
		t.Fatalf("MulticastNode of an agent that lives: %v", err)
	}
	// It no longer renews.
	w.gone(t, &mcn)
	w.gone(t, g)
}
