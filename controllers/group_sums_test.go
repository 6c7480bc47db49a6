package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// entry of a node in group "a" of generation 2.
func entry(node string, members, joined, failing int32, message string) v1alpha1.MulticastNode {
	n := v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	n.Status.Groups = []v1alpha1.NodeGroup{
		{Namespace: "feeds", Name: "another", UID: "z", Generation: 2, Members: 1, Failing: 1, Message: "another's"},
		{Namespace: "feeds", Name: "group-a", UID: "a", Generation: 2, Members: members, Joined: joined, Failing: failing, Message: message},
	}
	return n
}

func TestStatusOf(t *testing.T) {
	older := entry("n3", 1, 1, 0, "")
	older.Status.Groups[1].Generation = 1
	for name, tc := range map[string]struct {
		nodes    []v1alpha1.MulticastNode
		refused  bool
		deleted  bool
		counts   v1alpha1.NodeCounts
		ready    metav1.ConditionStatus
		reason   string
		messages []string
		// generation that is observed; 0: the group's.
		generation int64
	}{
		"nobody asks": {
			counts: v1alpha1.NodeCounts{Summary: "0/0"}, ready: metav1.ConditionTrue, reason: v1alpha1.ReasonNoMembers,
			messages: []string{"no membership is wanted", "no pod asks for it"},
		},
		"the last one is leaving": {
			nodes:  []v1alpha1.MulticastNode{entry("n1", 0, 0, 0, "")},
			counts: v1alpha1.NodeCounts{Summary: "0/0"}, ready: metav1.ConditionTrue, reason: v1alpha1.ReasonNoMembers,
		},
		"all joined": {
			nodes:  []v1alpha1.MulticastNode{entry("n1", 2, 2, 0, ""), entry("n2", 1, 1, 0, "")},
			counts: v1alpha1.NodeCounts{Summary: "2/2", Desired: 2, Joined: 2}, ready: metav1.ConditionTrue, reason: v1alpha1.ReasonAllJoined,
			messages: []string{"joined on 2 of 2 nodes"},
		},
		"joining": {
			nodes:  []v1alpha1.MulticastNode{entry("n1", 2, 1, 0, ""), entry("n2", 1, 1, 0, "")},
			counts: v1alpha1.NodeCounts{Summary: "1/2", Desired: 2, Joined: 1}, ready: metav1.ConditionFalse, reason: v1alpha1.ReasonJoining,
			messages: []string{"joined on 1 of 2 nodes"},
		},
		"numbers of an earlier generation": {
			nodes:  []v1alpha1.MulticastNode{entry("n1", 1, 1, 0, ""), older},
			counts: v1alpha1.NodeCounts{Summary: "2/2", Desired: 2, Joined: 2}, ready: metav1.ConditionTrue, reason: v1alpha1.ReasonAllJoined,
			generation: 1,
		},
		"a node that refuses": { // to be a member by itself, say
			nodes:  []v1alpha1.MulticastNode{entry("n1", 1, 0, 1, "the group's interfaceSelector selects none of the node's interfaces"), entry("n2", 1, 1, 0, "")},
			counts: v1alpha1.NodeCounts{Summary: "1/2", Desired: 2, Joined: 1, Failing: 1}, ready: metav1.ConditionFalse, reason: v1alpha1.ReasonSomeFailing,
			messages: []string{"failing on 1 of 2 nodes: n1 (the group's interfaceSelector selects none of the node's interfaces)"},
		},
		"some failing": {
			nodes:  []v1alpha1.MulticastNode{entry("n2", 1, 1, 0, ""), entry("n1", 2, 1, 1, "join 239.1.1.7 on net1: no such device"), entry("n3", 2, 1, 0, "")},
			counts: v1alpha1.NodeCounts{Summary: "1/3", Desired: 3, Joined: 1, Failing: 1}, ready: metav1.ConditionFalse, reason: v1alpha1.ReasonSomeFailing,
			messages: []string{"failing on 1 of 3 nodes: n1 (join 239.1.1.7 on net1: no such device)"},
		},
		"not accepted": {
			nodes: []v1alpha1.MulticastNode{entry("n1", 1, 1, 0, "")}, refused: true,
			counts: v1alpha1.NodeCounts{Summary: "1/1", Desired: 1, Joined: 1}, ready: metav1.ConditionFalse, reason: v1alpha1.ReasonNotAccepted,
		},
		"leaving": {
			nodes: []v1alpha1.MulticastNode{entry("n2", 0, 0, 0, ""), entry("n1", 1, 1, 0, "")}, deleted: true,
			counts: v1alpha1.NodeCounts{Summary: "1/1", Desired: 1, Joined: 1}, ready: metav1.ConditionFalse, reason: v1alpha1.ReasonLeaving,
			messages: []string{"waiting for 2 nodes to leave: n1, n2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := groupOf("a", "239.1.1.7", 5, 2)
			var holder *v1alpha1.MulticastGroup
			if tc.refused {
				other := groupOf("b", "239.1.1.7", 9, 2)
				holder = &other
			}
			if tc.deleted {
				g = deleting(g)
			}
			if tc.generation == 0 {
				tc.generation = g.Generation
			}
			got := statusOf(&g, holder, nil, entriesOf(&g, tc.nodes))
			if diff := cmp.Diff(&tc.counts, got.Nodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			ready := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionReady)
			if ready == nil || ready.Status != tc.ready || ready.Reason != tc.reason || ready.ObservedGeneration != tc.generation {
				t.Fatalf("Ready is %+v, want %s %s", ready, tc.ready, tc.reason)
			}
			for _, want := range tc.messages {
				if !strings.Contains(ready.Message, want) {
					t.Errorf("message %q doesn't say %q", ready.Message, want)
				}
			}
			if got := meta.IsStatusConditionFalse(got.Conditions, v1alpha1.ConditionAccepted); got != tc.refused {
				t.Errorf("Accepted is False: %t, want %t", got, tc.refused)
			}
			g.Status = got
			if again := statusOf(&g, holder, nil, entriesOf(&g, tc.nodes)); !equality.Semantic.DeepEqual(got, again) {
				t.Errorf("the same again is written again:\n%s", cmp.Diff(got, again))
			}
		})
	}
}

// Where nothing is wanted, what could want it is named.
func TestNoMembersMessage(t *testing.T) {
	g := groupOf("a", "239.1.1.7", 5, 2)
	const nodes = "spec.nodes selects no node"
	if message := noMembersMessage(&g); strings.Contains(message, nodes) {
		t.Errorf("without spec.nodes: %q", message)
	}
	g.Spec.Nodes = &v1alpha1.NodeMembers{}
	status := statusOf(&g, nil, nil, nil)
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonNoMembers || !strings.Contains(c.Message, nodes) {
		t.Errorf("condition %+v", c)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	g := deleting(groupOf("a", "239.1.1.7", 5, 2))
	var nodes []v1alpha1.MulticastNode
	for i := range 1000 {
		nodes = append(nodes, entry(fmt.Sprintf("n%04d", i), 1, 0, 1, strings.Repeat("m", v1alpha1.MaxNodeGroupMessage)))
	}
	for _, g := range []v1alpha1.MulticastGroup{g, groupOf("a", "239.1.1.7", 5, 2)} {
		status := statusOf(&g, nil, nil, entriesOf(&g, nodes))
		message := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Message
		if want := "n0003, n0004 and 995 more"; !strings.Contains(strings.ReplaceAll(message, " ("+strings.Repeat("m", v1alpha1.MaxNodeGroupMessage)+")", ""), want) {
			t.Errorf("message %q doesn't say %q", message, want)
		}
		if len(message) > 2048 {
			t.Errorf("a message of %d bytes", len(message))
		}
	}
}

func TestLeavingTellsOfGoneNodes(t *testing.T) {
	message := leavingMessage([]nodeEntry{{node: "n1"}, {node: "n2", nodeGone: true}})
	if want := "waiting for 2 nodes to leave: n1, n2 (its Node is gone: counts until its agent's Lease expires)"; !strings.Contains(message, want) {
		t.Errorf("message %q, want %q in it", message, want)
	}
}

func TestChangedEntries(t *testing.T) {
	name := func(n string) types.NamespacedName { return types.NamespacedName{Namespace: "feeds", Name: n} }
	before, after := entry("n1", 1, 0, 0, ""), entry("n1", 1, 1, 0, "")
	if diff := cmp.Diff(map[types.NamespacedName]bool{name("group-a"): true}, changedEntries(&before, &after)); diff != "" {
		t.Errorf("one changed (-want +got):\n%s", diff)
	}
	both := map[types.NamespacedName]bool{name("group-a"): true, name("another"): true}
	if diff := cmp.Diff(both, changedEntries(nil, &after)); diff != "" {
		t.Errorf("new (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(both, changedEntries(&before, nil)); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
	if got := changedEntries(&after, &after); len(got) > 0 {
		t.Errorf("nothing changed: %v", got)
	}
}

func TestLeaseObserver(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	o := newLeaseObserver()
	look := func(after time.Duration, version string, want time.Duration) {
		t.Helper()
		now = now.Add(after)
		if left, _ := o.observe("n1", lease(version, 10), now); left != want {
			t.Errorf("Lease %q at %v: %v left, want %v", version, now.Format(time.TimeOnly), left, want)
		}
	}
	look(0, "1", 10*time.Second)
	look(9*time.Second, "1", time.Second)
	look(0, "2", 10*time.Second) // renewed
	look(10*time.Second, "2", 0)
	look(0, "3", 10*time.Second) // lives after all
	if left, first := o.observe("n1", nil, now); left != DefaultLeaseDuration || first {
		t.Errorf("Lease gone: %v left, first look %t", left, first)
	}
	if left, _ := o.observe("n1", nil, now.Add(DefaultLeaseDuration)); left != 0 {
		t.Errorf("no Lease for as long as one lasts: %v left", left)
	}
	o.forget("n1")
	if left, first := o.observe("n1", nil, now); left != DefaultLeaseDuration || !first {
		t.Errorf("forgotten: %v left, first look %t", left, first)
	}
}
