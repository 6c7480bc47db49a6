package controllers

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

var epoch = metav1.NewTime(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))

// groupOf makes a group that is age seconds old and of generation 2, accepted
// at the generation given; 0: never.
func groupOf(uid, address string, age int, accepted int64) v1alpha1.MulticastGroup {
	g := v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "feeds", Name: "group-" + uid, UID: types.UID(uid), Generation: 2,
			CreationTimestamp: metav1.NewTime(epoch.Add(-time.Duration(age) * time.Second)),
		},
		Spec: v1alpha1.MulticastGroupSpec{Address: address, PortSpace: v1alpha1.PortSpaceUDP},
	}
	if accepted > 0 {
		g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: accepted}}
	}
	return g
}

func deleting(g v1alpha1.MulticastGroup) v1alpha1.MulticastGroup {
	g.DeletionTimestamp = &epoch
	return g
}

func onInfiniBand(g v1alpha1.MulticastGroup, space v1alpha1.PortSpace) v1alpha1.MulticastGroup {
	g.Spec.PortSpace = space
	g.Spec.InterfaceSelector = &v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand}}
	return g
}

func withSpace(g v1alpha1.MulticastGroup, space v1alpha1.PortSpace) v1alpha1.MulticastGroup {
	g.Spec.PortSpace = space
	return g
}

func TestHolderOfAddress(t *testing.T) {
	const address = "239.1.1.7"
	for name, tc := range map[string]struct {
		group  v1alpha1.MulticastGroup
		rivals []v1alpha1.MulticastGroup
		want   types.UID // "": accepted
	}{
		"alone":                {group: groupOf("a", address, 0, 0)},
		"itself isn't a rival": {group: groupOf("a", address, 0, 0), rivals: []v1alpha1.MulticastGroup{groupOf("a", address, 0, 0)}},
		"another address":      {group: groupOf("a", address, 0, 0), rivals: []v1alpha1.MulticastGroup{groupOf("b", "239.1.1.8", 9, 2)}},
		"the older one":        {group: groupOf("a", address, 9, 0), rivals: []v1alpha1.MulticastGroup{groupOf("b", address, 0, 0)}},
		"the younger one":      {group: groupOf("a", address, 0, 0), rivals: []v1alpha1.MulticastGroup{groupOf("b", address, 9, 0)}, want: "b"},
		"a tie, first UID":     {group: groupOf("a", address, 5, 0), rivals: []v1alpha1.MulticastGroup{groupOf("b", address, 5, 0)}},
		"a tie, second UID":    {group: groupOf("b", address, 5, 0), rivals: []v1alpha1.MulticastGroup{groupOf("a", address, 5, 0)}, want: "a"},
		"in force stays in force": {
			group: groupOf("b", address, 5, 2), rivals: []v1alpha1.MulticastGroup{groupOf("a", address, 5, 0)},
		},
		"in force against an older one": {
			group: groupOf("a", address, 9, 0), rivals: []v1alpha1.MulticastGroup{groupOf("b", address, 5, 2)}, want: "b",
		},
		"edited, against one that waits": {
			group: groupOf("b", address, 5, 1), rivals: []v1alpha1.MulticastGroup{groupOf("a", address, 9, 0)},
		},
		"edited into a conflict": {
			group: groupOf("a", address, 9, 1), rivals: []v1alpha1.MulticastGroup{groupOf("b", address, 5, 2)}, want: "b",
		},
		"one that is being deleted": {
			group: groupOf("a", address, 0, 0), rivals: []v1alpha1.MulticastGroup{deleting(groupOf("b", address, 9, 2))}, want: "b",
		},
		"one that was refused holds nobody off": {
			// c conflicts with b alone, and b with a too: a is in force, b isn't.
			group: onInfiniBand(groupOf("c", address, 1, 0), v1alpha1.PortSpaceIPoIB),
			rivals: []v1alpha1.MulticastGroup{
				withSpace(groupOf("b", address, 5, 0), v1alpha1.PortSpaceIPoIB),
				onInfiniBand(groupOf("a", address, 9, 0), v1alpha1.PortSpaceUDP),
			},
		},
		"the one in force is named": {
			group:  groupOf("c", address, 1, 0),
			rivals: []v1alpha1.MulticastGroup{groupOf("b", address, 5, 0), groupOf("a", address, 9, 0)},
			want:   "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got types.UID
			if holder := holderOfAddress(&tc.group, tc.rivals); holder != nil {
				got = holder.UID
			}
			if got != tc.want {
				t.Errorf("held by %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAcceptanceNamesTheHolder(t *testing.T) {
	g, holder := groupOf("a", "239.1.1.7", 0, 0), groupOf("b", "239.1.1.7", 9, 2)
	c := acceptance(&g, &holder)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonAddressConflict || c.ObservedGeneration != 2 {
		t.Errorf("condition %+v", c)
	}
	for _, want := range []string{"feeds/group-b", "239.1.1.7", "delete one of them"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("message %q doesn't say %q", c.Message, want)
		}
	}
	holder = deleting(holder)
	if c := acceptance(&g, &holder); !strings.Contains(c.Message, "is being deleted") {
		t.Errorf("message %q doesn't say that the other one is being deleted", c.Message)
	}
	if c := acceptance(&g, nil); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonAccepted || c.ObservedGeneration != 2 {
		t.Errorf("condition %+v", c)
	}
}

// A deletion raises the generation. Nodes may still be members, so the address
// stays taken, also for an older group that is edited into conflict with it.
func TestGroupThatIsBeingDeletedKeepsItsAddress(t *testing.T) {
	accepted := func(name string, age time.Duration, layers ...v1alpha1.LinkLayer) *v1alpha1.MulticastGroup {
		return &v1alpha1.MulticastGroup{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(name), Name: name, Generation: 2, CreationTimestamp: metav1.NewTime(epoch.Add(-age))},
			Spec:       v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: layers}},
			Status: v1alpha1.MulticastGroupStatus{Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: 1}}},
		}
	}
	deleting := accepted("deleting", time.Hour, v1alpha1.LinkLayerEthernet)
	deleting.DeletionTimestamp = &epoch
	edited := accepted("edited", 2*time.Hour, v1alpha1.LinkLayerEthernet, v1alpha1.LinkLayerInfiniBand) // was InfiniBand alone
	if holder := holderOfAddress(edited, []v1alpha1.MulticastGroup{*deleting}); holder == nil || holder.Name != "deleting" {
		t.Errorf("the holder is %v, want the group that is being deleted", holder)
	}
}
