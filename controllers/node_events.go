package controllers

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

const (
	eventGroupDeleted = "GroupDeleted"
	eventRecovered    = "GroupsJoined"

	actionJoin  = "Join"
	actionLeave = "Leave"

	// maxEventNote is less than the 1,024 bytes that events.k8s.io takes.
	maxEventNote = 1000
)

// toldPod is what the events on one pod have said so far.
type toldPod struct {
	uid         types.UID
	problems    map[problemKey]*toldProblem
	troubled    bool // a problem was told, and not yet that all is well again
	memberships map[string]string
	deleted     map[string]bool // groups that were told to be deleted
}

type problemKey struct{ reason, group, iface string }

type toldProblem struct {
	since time.Time
	told  bool
}

// tell makes the events that an answer is due: one for each reason that has
// come up, however many groups share it, one when no problem is left, and one
// for each group that was deleted under the pod. It returns when to look
// again, zero for never. With known, the pod had this very answer already: an
// earlier process has told.
func (r *NodeReporter) tell(pod *corev1.Pod, a podAnswer, known bool) time.Duration {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	t := r.told[key]
	first := t == nil || t.uid != pod.UID
	if first {
		t = &toldPod{uid: pod.UID, problems: map[problemKey]*toldProblem{}, deleted: map[string]bool{}}
		r.told[key] = t
	}
	r.tellDeleted(pod, t, a)

	now := time.Now()
	current := map[problemKey]bool{}
	due := map[string][]podProblem{}
	var next time.Duration
	for _, p := range a.problems {
		if p.transient {
			continue
		}
		k := problemKey{p.reason, p.group, p.iface}
		current[k] = true
		seen := t.problems[k]
		if seen == nil {
			seen = &toldProblem{since: now, told: first && known}
			t.problems[k] = seen
		}
		if t.deleted[p.group] {
			seen.told = true
		}
		if seen.told {
			continue
		}
		if left := seen.since.Add(r.delay).Sub(now); left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		seen.told = true
		due[p.reason] = append(due[p.reason], p)
	}
	for _, reason := range slices.Sorted(maps.Keys(due)) {
		r.recorder.Eventf(pod, groupReference(due[reason][0].group), corev1.EventTypeWarning, reason, actionJoin, "%s", describe(due[reason], maxEventNote))
	}
	for k, seen := range t.problems {
		t.troubled = t.troubled || seen.told
		if !current[k] {
			delete(t.problems, k)
		}
	}
	if t.troubled && len(t.problems) == 0 && a.condition.Status == corev1.ConditionTrue {
		t.troubled = false
		r.recorder.Eventf(pod, nil, corev1.EventTypeNormal, eventRecovered, actionJoin, "%s", a.condition.Message)
	}
	return next
}

// tellDeleted tells of groups that were left because they were deleted. That
// such a group is unknown from then on needs no event of its own.
func (r *NodeReporter) tellDeleted(pod *corev1.Pod, t *toldPod, a podAnswer) {
	for group := range a.memberships {
		delete(t.deleted, group)
	}
	for _, group := range slices.Sorted(maps.Keys(t.memberships)) {
		uid := t.memberships[group]
		if a.ended || a.memberships[group] == uid || a.existing[group] == uid || !asksFor(a, group) {
			continue
		}
		t.deleted[group] = a.memberships[group] == ""
		r.recorder.Eventf(pod, groupReference(group), corev1.EventTypeWarning, eventGroupDeleted, actionLeave, "MulticastGroup %s was deleted: left", group)
	}
	t.memberships = a.memberships
}

// asksFor: the answer is about this group, so the pod still asks for it.
func asksFor(a podAnswer, group string) bool {
	return slices.ContainsFunc(a.statuses, func(s v1alpha1.MembershipStatus) bool { return s.Group == group })
}

// groupReference names a group as an event's related object, so that events
// about different groups aren't counted as repetitions of one. It is nil where
// the problem isn't about a group.
func groupReference(group string) runtime.Object {
	namespace, name, ok := strings.Cut(group, "/")
	if !ok {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MulticastGroup", Namespace: namespace, Name: name}
}
