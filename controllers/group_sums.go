package controllers

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// namedNodes is how many nodes a condition's message names.
const namedNodes = 5

// nodeEntry is one node's part in a group.
type nodeEntry struct {
	node string
	v1alpha1.NodeGroup
	// nodeGone: there is no Node of that name any more.
	nodeGone bool
}

// entriesOf takes the entries of one group out of the nodes' objects, ordered
// by node.
func entriesOf(g *v1alpha1.MulticastGroup, nodes []v1alpha1.MulticastNode) []nodeEntry {
	var entries []nodeEntry
	for i := range nodes {
		for _, e := range nodes[i].Status.Groups {
			if e.UID == g.UID {
				entries = append(entries, nodeEntry{node: nodes[i].Name, NodeGroup: e})
			}
		}
	}
	slices.SortFunc(entries, func(a, b nodeEntry) int { return strings.Compare(a.node, b.node) })
	return entries
}

// sum counts nodes. An entry without members is one that is about to go. One
// that speaks about an earlier generation counts as it is: an edit that changes
// nothing about memberships must not look as if all were lost. See answered.
func sum(entries []nodeEntry) v1alpha1.NodeCounts {
	var n v1alpha1.NodeCounts
	for _, e := range entries {
		if e.Members == 0 {
			continue
		}
		n.Desired++
		switch {
		case e.Failing > 0:
			n.Failing++
		case e.Joined >= e.Members:
			n.Joined++
		}
	}
	n.Summary = fmt.Sprintf("%d/%d", n.Joined, n.Desired)
	return n
}

// answered is the generation that every node which counts has answered.
func answered(g *v1alpha1.MulticastGroup, entries []nodeEntry) int64 {
	generation := g.Generation
	for _, e := range entries {
		if e.Members > 0 && e.Generation > 0 {
			generation = min(generation, e.Generation)
		}
	}
	return generation
}

// readiness is the group's condition Ready. After an edit it goes on telling
// how things stand, with the observedGeneration that all nodes have answered:
// whoever waits for the edit to be in force, as kubectl wait does, compares it.
func readiness(g *v1alpha1.MulticastGroup, accepted bool, n v1alpha1.NodeCounts, entries []nodeEntry) metav1.Condition {
	c := metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: g.Generation,
	}
	switch {
	case !g.DeletionTimestamp.IsZero():
		c.Reason, c.Message = v1alpha1.ReasonLeaving, leavingMessage(entries)
	case !accepted:
		c.Reason, c.Message = v1alpha1.ReasonNotAccepted, "see the condition Accepted"
	case n.Desired == 0 && g.Spec.Nodes != nil:
		// Not True: the nodes may not have answered yet.
		c.Reason, c.Message = v1alpha1.ReasonNoMembers, noMembersMessage(g)
	case n.Desired == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonNoMembers, noMembersMessage(g)
	case n.Failing > 0:
		c.Reason, c.Message = v1alpha1.ReasonSomeFailing, failingMessage(n, entries)
	case n.Joined < n.Desired:
		c.Reason, c.Message = v1alpha1.ReasonJoining, fmt.Sprintf("joined on %d of %d nodes", n.Joined, n.Desired)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonAllJoined, fmt.Sprintf("joined on %d of %d nodes", n.Joined, n.Desired)
	}
	if g.DeletionTimestamp.IsZero() && accepted {
		c.ObservedGeneration = answered(g, entries)
	}
	return c
}

// noMembersMessage says why no membership is wanted.
func noMembersMessage(g *v1alpha1.MulticastGroup) string {
	message := "no membership is wanted: no pod asks for it, or only ones that may not have it (see their conditions)"
	if g.Spec.Nodes != nil {
		message += ", and spec.nodes selects no node that has an agent and an RDMA interface, or none has answered yet"
	}
	return message
}

func failingMessage(n v1alpha1.NodeCounts, entries []nodeEntry) string {
	var named []string
	for _, e := range entries {
		if e.Failing > 0 {
			name := e.node
			if e.Message != "" {
				name += " (" + e.Message + ")"
			}
			named = append(named, name)
		}
	}
	return fmt.Sprintf("failing on %d of %d nodes: %s", n.Failing, n.Desired, enumerate(named))
}

// leavingMessage says whom the deletion of a group waits for.
func leavingMessage(entries []nodeEntry) string {
	if len(entries) == 0 {
		return "being deleted; making sure that every node has left"
	}
	var named []string
	for _, e := range entries {
		name := e.node
		if e.nodeGone {
			name += " (its Node is gone: counts until its agent's Lease expires)"
		}
		named = append(named, name)
	}
	plural := "s"
	if len(named) == 1 {
		plural = ""
	}
	return fmt.Sprintf("being deleted; waiting for %d node%s to leave: %s", len(named), plural, enumerate(named))
}

// enumerate names the first few.
func enumerate(names []string) string {
	if more := len(names) - namedNodes; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedNodes], ", "), more)
	}
	return strings.Join(names, ", ")
}

// statusOf is the whole status of a group, given who has its address, if another
// one has it, and who shares its Ethernet address. A group that is being deleted
// keeps the acceptance that it had.
func statusOf(g, holder *v1alpha1.MulticastGroup, sharers []string, entries []nodeEntry) v1alpha1.MulticastGroupStatus {
	status := *g.Status.DeepCopy()
	if g.DeletionTimestamp.IsZero() {
		meta.SetStatusCondition(&status.Conditions, acceptance(g, holder))
		if holder == nil {
			meta.SetStatusCondition(&status.Conditions, ethernetUniqueness(g, sharers))
		} else {
			meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionEthernetAddressUnique)
		}
	}
	n := sum(entries)
	status.Nodes = &n
	meta.SetStatusCondition(&status.Conditions, readiness(g, holder == nil, n, entries))
	return status
}

// conditionChanged tells whether anything about a condition differs.
func conditionChanged(a, b v1alpha1.MulticastGroupStatus, conditionType string) bool {
	return !equality.Semantic.DeepEqual(meta.FindStatusCondition(a.Conditions, conditionType), meta.FindStatusCondition(b.Conditions, conditionType))
}

// conditionDiffers tells whether a condition's status, reason or generation
// differs; messages aside.
func conditionDiffers(a, b []metav1.Condition, conditionType string) bool {
	before, after := meta.FindStatusCondition(a, conditionType), meta.FindStatusCondition(b, conditionType)
	if before == nil || after == nil {
		return before != after
	}
	return before.Status != after.Status || before.Reason != after.Reason || before.ObservedGeneration != after.ObservedGeneration
}
