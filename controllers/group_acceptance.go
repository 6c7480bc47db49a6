package controllers

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// acceptedGeneration tells whether the group's present generation is in force.
func acceptedGeneration(g *v1alpha1.MulticastGroup) bool {
	c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == g.Generation
}

// standing ranks a group among those with its fabric address. What is in force
// stays in force, whatever comes later with an earlier timestamp; and an edit
// that brings two groups into conflict falls back on the one that was edited.
func standing(g *v1alpha1.MulticastGroup) int {
	const never, before, inForce = 0, 1, 2
	switch {
	case acceptedGeneration(g),
		// A deletion raises the generation; nodes may still be members.
		!g.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionAccepted):
		return inForce
	case meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionAccepted):
		return before
	}
	return never
}

// holderOfAddress finds the group that keeps g from being accepted: one with
// the same fabric address and the better right to it, by standing, then age,
// then UID. Groups that are being deleted count: nodes may be members of them
// still. rivals may include g and groups with other addresses.
func holderOfAddress(g *v1alpha1.MulticastGroup, rivals []v1alpha1.MulticastGroup) *v1alpha1.MulticastGroup {
	candidates := []*v1alpha1.MulticastGroup{g}
	for i := range rivals {
		if rivals[i].UID != g.UID {
			candidates = append(candidates, &rivals[i])
		}
	}
	slices.SortFunc(candidates, byRight)
	// A group that is itself held off doesn't hold off others.
	var inForce []*v1alpha1.MulticastGroup
	for _, c := range candidates {
		i := slices.IndexFunc(inForce, func(holder *v1alpha1.MulticastGroup) bool {
			return sameFabricAddress(&c.Spec, &holder.Spec)
		})
		switch {
		case i < 0 && c == g:
			return nil
		case i < 0:
			inForce = append(inForce, c)
		case c == g:
			return inForce[i]
		}
	}
	return nil
}

func byRight(a, b *v1alpha1.MulticastGroup) int {
	return cmp.Or(
		cmp.Compare(standing(b), standing(a)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.UID, b.UID),
	)
}

// acceptance is the group's condition Accepted, given who has its address.
func acceptance(g, holder *v1alpha1.MulticastGroup) metav1.Condition {
	c := metav1.Condition{
		Type:               v1alpha1.ConditionAccepted,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonAccepted,
		Message:            "agents may join it",
		ObservedGeneration: g.Generation,
	}
	if holder != nil {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonAddressConflict
		state := "has"
		if !holder.DeletionTimestamp.IsZero() {
			state = "is being deleted and still has"
		}
		address := groupAddress(&holder.Spec)
		if own := groupAddress(&g.Spec); own != address {
			address += ", which is one with " + own + " on InfiniBand"
		}
		c.Message = fmt.Sprintf("MulticastGroup %s/%s %s the same address on the fabric (%s): delete one of them, use another address, or have pods ask for the other one (its allowedNamespaces)",
			holder.Namespace, holder.Name, state, address)
	}
	return c
}
