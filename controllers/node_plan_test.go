package controllers

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/internal/sandbox"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func multicastGroup(generation, judged int64, accepted metav1.ConditionStatus) v1alpha1.MulticastGroup {
	g := v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid-a", Generation: generation},
		Spec:       v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", AllowedNamespaces: []string{fmt.Sprint(generation)}},
	}
	if judged > 0 {
		g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: accepted, ObservedGeneration: judged}}
	}
	return g
}

// The generation that was accepted last is in force until the next is judged.
func TestGenerationInForce(t *testing.T) {
	now := metav1.Now()
	deleting := multicastGroup(3, 2, metav1.ConditionTrue)
	deleting.DeletionTimestamp = &now
	steps := []struct {
		group      v1alpha1.MulticastGroup
		accepted   bool
		generation int64
		deleting   bool
	}{
		{multicastGroup(1, 0, ""), false, 1, false},
		{multicastGroup(1, 1, metav1.ConditionTrue), true, 1, false},
		{multicastGroup(2, 1, metav1.ConditionTrue), true, 1, false},
		{multicastGroup(2, 2, metav1.ConditionTrue), true, 2, false},
		{deleting, true, 2, true},
		{multicastGroup(4, 4, metav1.ConditionFalse), false, 4, false},
		{multicastGroup(5, 4, metav1.ConditionFalse), false, 5, false},
	}
	var a acceptedGroups
	for i, s := range steps {
		got := a.of([]v1alpha1.MulticastGroup{s.group})[0]
		if got.Accepted != s.accepted || got.Generation != s.generation || got.Deleting != s.deleting || got.Allowed[0] != fmt.Sprint(s.generation) {
			t.Errorf("step %d: accepted %v, generation %d, deleting %v, allowed %v; want %+v", i, got.Accepted, got.Generation, got.Deleting, got.Allowed, s)
		}
	}
	a.of([]v1alpha1.MulticastGroup{multicastGroup(1, 1, metav1.ConditionTrue)})
	a.of(nil)
	if got := a.of([]v1alpha1.MulticastGroup{multicastGroup(2, 1, metav1.ConditionTrue)})[0]; got.Accepted {
		t.Error("what a group that went was accepted as is remembered")
	}
}

func TestPlanningGroup(t *testing.T) {
	g := multicastGroup(1, 1, metav1.ConditionTrue)
	g.Spec.PortSpace, g.Spec.Mode = v1alpha1.PortSpaceIPoIB, v1alpha1.SendOnlyFullMember
	g.Spec.InterfaceSelector = &v1alpha1.InterfaceSelector{
		LinkLayers: []v1alpha1.LinkLayer{"Ethernet"}, Devices: []string{"mlx5_*"}, Interfaces: []string{"net*"}, Subnets: []string{"10.0.0.0/24"},
	}
	want := membership.Group{
		UID: "uid-a", Namespace: "ns", Name: "a", Generation: 1, Address: netip.MustParseAddr("239.1.1.7"),
		PortSpace: rdma.PortSpaceIPoIB, Mode: rdma.SendOnlyFullMember, Allowed: []string{"1"}, Accepted: true,
		Selector: membership.Selector{LinkLayers: []string{"Ethernet"}, Devices: []string{"mlx5_*"}, Interfaces: []string{"net*"},
			Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}},
	}
	if diff := cmp.Diff(want, planningGroup(&g), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	class := int32(184)
	g.Spec.Address, g.Spec.MGID, g.Spec.TrafficClass = "", "ff15:a01b::7", &class
	g.Spec.Nodes = &v1alpha1.NodeMembers{NodeSelector: map[string]v1alpha1.LabelValue{"rack": "a"}}
	got := planningGroup(&g)
	if !got.Accepted || !got.Verbatim || got.Address != netip.MustParseAddr("ff15:a01b::7") || got.TrafficClass != 184 || got.Nodes == nil || got.Nodes.Labels["rack"] != "a" {
		t.Errorf("with an MGID, a traffic class and nodes: %+v", got)
	}
	g.Spec.Address = "239.1.1.7"
	if planningGroup(&g).Accepted {
		t.Error("a group with an address and an MGID is accepted")
	}
	g.Spec.MGID = ""
	g.Spec.InterfaceSelector.Subnets = []string{"10.0.0.0"}
	if planningGroup(&g).Accepted {
		t.Error("a subnet that isn't one is taken for none at all")
	}
	g.Spec = v1alpha1.MulticastGroupSpec{Address: "239.1.1"}
	if planningGroup(&g).Accepted {
		t.Error("an address that isn't one is accepted")
	}
}

func TestMatchPods(t *testing.T) {
	object := func(uid, name string, annotations map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: annotations}}
	}
	live := func(uid, name, groups string) sandbox.Sandbox {
		return sandbox.Sandbox{ID: "s-" + name, PodUID: uid, PodNamespace: "ns", PodName: name, NetNS: "/netns/" + name,
			Annotations: map[string]string{v1alpha1.GroupsAnnotation: groups}}
	}
	asks := func(groups string) map[string]string { return map[string]string{v1alpha1.GroupsAnnotation: groups} }
	p := NewNodePlanner(NodePlannerOptions{})
	groups := func(live []sandbox.Sandbox, objects []corev1.Pod) (got []string, matched []string) {
		pods, found := p.matchPods(live, objects)
		for _, pod := range pods {
			for _, r := range pod.Requests {
				got = append(got, pod.Name+":"+r.Name)
			}
		}
		for uid, object := range found {
			matched = append(matched, uid+"="+string(object.UID))
		}
		slices.Sort(matched)
		return got, matched
	}
	check := func(what string, live []sandbox.Sandbox, objects []corev1.Pod, want, wantMatched []string) {
		t.Helper()
		got, matched := groups(live, objects)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		if diff := cmp.Diff(wantMatched, matched); diff != "" {
			t.Errorf("%s: matched: %s", what, diff)
		}
	}
	a := live("u1", "a", "old")
	check("no object: the sandbox's copy", []sandbox.Sandbox{a}, nil, []string{"a:old"}, nil)
	check("the object's edit is followed", []sandbox.Sandbox{a}, []corev1.Pod{object("u1", "a", asks("new"))}, []string{"a:new"}, []string{"u1=u1"})
	check("and outlives the object", []sandbox.Sandbox{a}, nil, []string{"a:new"}, nil)
	check("another pod of that name", []sandbox.Sandbox{live("u2", "b", "old")}, []corev1.Pod{object("u3", "b", asks("new"))}, []string{"b:old"}, nil)
	check("a static pod's mirror", []sandbox.Sandbox{live("hash", "c", "old")},
		[]corev1.Pod{object("u4", "c", map[string]string{v1alpha1.GroupsAnnotation: "new", corev1.MirrorPodAnnotationKey: "hash"})}, []string{"c:new"}, []string{"hash=u4"})
	check("somebody else's claim to be a mirror", []sandbox.Sandbox{live("u5", "d", "old")},
		[]corev1.Pod{object("u6", "e", map[string]string{v1alpha1.GroupsAnnotation: "new", corev1.MirrorPodAnnotationKey: "u5"})}, []string{"d:old"}, nil)
	check("a pod that asks for nothing", []sandbox.Sandbox{live("u7", "f", " ")}, nil, nil, nil)
	if len(p.annotations) != 0 {
		t.Errorf("annotations of sandboxes that are gone are remembered: %v", p.annotations)
	}
}

func TestNumbers(t *testing.T) {
	failing := held("a", membership.Failing, "input/output error", "p3")
	failing.Interface = "net2"
	p := planned{
		groups: []membership.Group{{UID: "uid-a", Generation: 4}},
		pods:   []membership.Pod{{UID: "p1", Namespace: "ns", Name: "one"}, {UID: "p3", Namespace: "ns", Name: "three"}},
		held: []membership.Status{
			held("a", membership.Joined, "", "p1", "p2"), failing,
			held("a", membership.Waiting, "", "p4"), held("b", membership.Leaving, "", "p1"),
		},
		verdicts: []membership.Verdict{
			{Holder: "p5", GroupNamespace: "ns", GroupName: "a", GroupUID: "uid-a", State: membership.Refused, Reason: membership.ReasonNotSelected, Message: "x"},
			{Holder: "p5", GroupNamespace: "ns", GroupName: "a", GroupUID: "uid-a", State: membership.Refused, Reason: membership.ReasonInterfaceNotFound},
			{Holder: "p5", GroupNamespace: "ns", GroupName: "a", GroupUID: "uid-a", State: membership.Refused, Reason: membership.ReasonNotAllowed},
			{Holder: "p5", GroupNamespace: "ns", GroupName: "c", State: membership.Waiting, Reason: membership.ReasonUnknownGroup},
			{Holder: "p5", GroupNamespace: "ns", GroupName: "d", GroupUID: "uid-d", State: membership.Waiting, Reason: membership.ReasonGroupDeleting},
		},
	}
	want := map[types.UID]v1alpha1.NodeGroup{"uid-a": {Namespace: "ns", Name: "a", UID: "uid-a", Generation: 4,
		Members: 5, Joined: 2, Failing: 2, Message: ": x"}}
	if diff := cmp.Diff(want, p.numbers()); diff != "" {
		t.Error(diff)
	}
}

// Interfaces are listed again when that is due; an error doesn't hide what was
// found; no namespace stays open.
func TestInterfacesAreListedWhenDue(t *testing.T) {
	node := rdmatest.NewFabric().AddNode("n")
	node.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
	node.AddNetNS("/ns")
	s := scopeInterfaces{host: node.Host()}
	now := time.Now()
	names := func(i membership.Interfaces) string {
		var all []string
		for _, f := range i.RDMA {
			all = append(all, f.Name)
		}
		return strings.Join(all, ",")
	}
	found := s.list("sandbox", "/ns", now, now)
	if !errors.Is(found.Err, errNoRDMAYet) {
		t.Errorf("new sandbox without an RDMA interface: %v", found.Err)
	}
	if next := s.settle(map[string]bool{"sandbox": true}, now); next != firstListing {
		t.Errorf("next listing in %v", next)
	}
	node.AddMACVLAN("/ns", "net1", "eth1", netip.MustParsePrefix("192.0.2.2/24"))
	if found := s.list("sandbox", "/ns", now, now.Add(firstListing/2)); names(found) != "" {
		t.Errorf("listed before that was due: %v", names(found))
	}
	now = now.Add(firstListing)
	if found := s.list("sandbox", "/ns", now.Add(-firstListing), now); names(found) != "net1" || found.Err != nil {
		t.Errorf("listed %q, %v", names(found), found.Err)
	}
	if next := s.settle(map[string]bool{"sandbox": false}, now); next != settledListing {
		t.Errorf("next listing in %v", next)
	}
	node.DeleteInterface("/ns", "net1")
	now = now.Add(settledListing)
	if found := s.list("sandbox", "/ns", time.Time{}, now); !errors.Is(found.Err, errNoRDMANow) {
		t.Errorf("a sandbox whose RDMA interface has gone: %q, %v: it mustn't take the node's", names(found), found.Err)
	}
	node.AddMACVLAN("/ns", "net1", "eth1", netip.MustParsePrefix("192.0.2.2/24"))
	now = now.Add(settledListing)
	if found := s.list("sandbox", "/ns", time.Time{}, now); names(found) != "net1" || found.Err != nil {
		t.Errorf("once it is back: %q, %v", names(found), found.Err)
	}
	node.DeleteNetNS("/ns")
	now = now.Add(settledListing)
	if found := s.list("sandbox", "/ns", time.Time{}, now); names(found) != "net1" || found.Err != nil {
		t.Errorf("after an error: %q, %v", names(found), found.Err)
	}
	var waits []time.Duration
	for range 5 {
		next := s.settle(map[string]bool{"sandbox": true}, now)
		waits = append(waits, next)
		now = now.Add(next)
		s.list("sandbox", "/ns", time.Time{}, now)
	}
	if diff := cmp.Diff([]time.Duration{1e9, 2e9, 4e9, 5e9, 5e9}, waits); diff != "" {
		t.Error(diff)
	}
	if found := s.list("new", "/nosuch", time.Time{}, now); !errors.Is(found.Err, syscall.ENOENT) {
		t.Errorf("a namespace that isn't there: %v", found.Err)
	}
	if found := s.list(membership.NodeScope, "", time.Time{}, now); names(found) != "eth1" {
		t.Errorf("the node's own: %q, %v", names(found), found.Err)
	}
	s.settle(map[string]bool{}, now)
	if len(s.scopes) != 0 {
		t.Errorf("scopes that are gone are remembered: %v", s.scopes)
	}
	if files, ids, namespaces := node.OpenHandles(); files+ids+namespaces != 0 {
		t.Errorf("left open: %d files, %d ids, %d namespaces", files, ids, namespaces)
	}
}

func TestRDMAReady(t *testing.T) {
	devices := []rdma.Device{{Name: "rxe0"}}
	tests := map[string]struct {
		unavailable, listing error
		devices              []rdma.Device
		simulated            bool
		status               metav1.ConditionStatus
		reason               string
	}{
		"fine":        {nil, nil, devices, false, "True", v1alpha1.ReasonRDMAAvailable},
		"simulated":   {nil, nil, devices, true, "True", v1alpha1.ReasonSimulated},
		"no module":   {&rdma.OpError{Err: syscall.ENOENT}, nil, devices, true, "False", v1alpha1.ReasonModuleNotLoaded},
		"no right":    {syscall.EACCES, nil, devices, false, "False", v1alpha1.ReasonRDMACMFailed},
		"no listing":  {nil, syscall.EPERM, nil, false, "False", v1alpha1.ReasonRDMACMFailed},
		"no device":   {nil, nil, nil, false, "False", v1alpha1.ReasonNoRDMADevice},
		"no simulant": {nil, nil, nil, true, "False", v1alpha1.ReasonNoRDMADevice},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := rdmaReady(tt.unavailable, tt.devices, tt.listing, tt.simulated)
			if c.Status != tt.status || c.Reason != tt.reason || c.Message == "" {
				t.Errorf("condition is %+v", c)
			}
		})
	}
}

// One event for each reason that has come up, none for what was told or passes
// at once, one when all is well again.
func TestEventsOnTransitions(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := NewNodeReporter(nil, nil, recorder, time.Nanosecond, logr.Discard())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "pod"}}
	tell := func(what string, a podAnswer, want ...string) {
		t.Helper()
		if a.memberships == nil {
			a.memberships = map[string]string{}
		}
		for r.tell(pod, a, false) > 0 {
			// The shortest delay that there is.
		}
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, <-recorder.Events)
		}
		if len(got) != len(want) {
			t.Errorf("%s: events %q, want %q", what, got, want)
			return
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s: event %q, want %q", what, got[i], want[i])
			}
		}
	}
	problem := func(reason, group string) podProblem {
		return podProblem{state: membership.Refused, reason: reason, group: group, message: "because", required: true}
	}
	well := podAnswer{condition: corev1.PodCondition{Status: corev1.ConditionTrue, Message: "all groups are joined"}}
	many := podAnswer{}
	for i := range 1000 {
		many.problems = append(many.problems, problem("UnknownGroup", fmt.Sprintf("ns/%d", i)))
	}
	tell("joined", well)
	tell("many of one reason", many, "Warning UnknownGroup ns/0: because")
	tell("the same again", many)
	tell("another reason", podAnswer{problems: append(slices.Clone(many.problems), problem("NotAllowed", "ns/x"))}, "Warning NotAllowed ns/x: because")
	tell("joining", podAnswer{problems: []podProblem{{reason: "Joining", group: "ns/a", transient: true}}})
	tell("well", well, "Normal GroupsJoined all groups are joined")
	tell("well still", well)
	tell("passes by itself", podAnswer{problems: []podProblem{{reason: "Joining", group: "ns/a", transient: true}}})

	member := func(uid string) podAnswer {
		return podAnswer{memberships: map[string]string{"ns/a": uid}, existing: map[string]string{"ns/a": uid},
			statuses: []v1alpha1.MembershipStatus{{Group: "ns/a"}}, condition: well.condition}
	}
	unknown := podAnswer{problems: []podProblem{problem("UnknownGroup", "ns/a")}, statuses: []v1alpha1.MembershipStatus{{Group: "ns/a"}}}
	tell("a member", member("1"))
	tell("its group is deleted", unknown, "Warning GroupDeleted MulticastGroup ns/a was deleted: left")
	tell("and stays so", unknown)
	tell("made again", member("2"), "Normal GroupsJoined")
	tell("replaced at once", member("3"), "Warning GroupDeleted")
	tell("not asked for any more", well)
	tell("a member again", member("3"))
	tell("the sandbox ends", podAnswer{ended: true, condition: answerEnded().condition})
}

// Any pod may carry kubelet's mirror annotation with another pod's UID.
func TestMirrorAnnotationHidesNoPod(t *testing.T) {
	p := NewNodePlanner(NodePlannerOptions{})
	victim := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "victim", UID: "u1",
		Annotations: map[string]string{v1alpha1.GroupsAnnotation: "new"}}}
	other := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "z", Name: "other", UID: "u2",
		Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "u1"}}}
	live := []sandbox.Sandbox{{ID: "s", PodUID: "u1", PodNamespace: "a", PodName: "victim",
		Annotations: map[string]string{v1alpha1.GroupsAnnotation: "old"}}}
	pods, objects := p.matchPods(live, []corev1.Pod{victim, other})
	if len(objects) != 1 || len(pods) != 1 || pods[0].Requests[0].Name != "new" {
		t.Errorf("the pod isn't answered, or its edits aren't followed: pods %+v, objects %v", pods, objects)
	}
}

// A link layer that the CRD doesn't know must not cost the node's object.
func TestUnknownLinkLayerIsLeftOut(t *testing.T) {
	devices := nodeDevices([]rdma.Device{{Name: "efa_0", NUMANode: -1, Ports: []rdma.Port{{Number: 1, LinkLayer: "Unknown"}}}})
	if len(devices) != 1 || devices[0].LinkLayer != "" {
		t.Errorf("devices are %+v: want efa_0 without a link layer", devices)
	}
}
