package controllers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

const (
	// maxStatusMessage bounds, in bytes, the message of one membership.
	maxStatusMessage = 256
	// maxConditionMessage bounds, in bytes, the condition's message.
	maxConditionMessage = 1024
	// maxConditionProblems is how many problems a message names.
	maxConditionProblems = 4
	// maxGroupStatus bounds, in bytes, the annotation group-status.
	maxGroupStatus = 64 << 10
	// maxAnnotations is what the API server takes of all annotations of an
	// object together, keys and values (ValidateAnnotationsSize).
	maxAnnotations = 256 << 10
)

// podAnswer is what a pod is told, and what its events are made from.
type podAnswer struct {
	uid       types.UID // of the API's object
	statuses  []v1alpha1.MembershipStatus
	condition corev1.PodCondition
	problems  []podProblem
	// memberships has the UID of each group, by namespace/name, that the pod
	// holds a membership of.
	memberships map[string]string
	// existing has the UID of each group, by namespace/name, that the pod asks
	// for and that is there to stay.
	existing map[string]string
	ended    bool // its sandbox has ended
}

// podProblem is why one group isn't joined on one interface.
type podProblem struct {
	state     membership.State
	reason    string
	group     string // namespace/name; "" the annotation itself
	iface     string
	message   string
	required  bool
	transient bool // goes by itself in the usual course: no event
}

func (p podProblem) subject() string {
	switch {
	case p.group == "":
		return v1alpha1.GroupsAnnotation
	case p.iface == "":
		return p.group
	}
	return p.group + " on " + p.iface
}

func (p podProblem) String() string {
	if p.message == "" {
		return p.subject()
	}
	return p.subject() + ": " + p.message
}

// oneLine joins the lines of an error that has several.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// answerPod makes the answer to a pod with a live sandbox.
func answerPod(pod membership.Pod, held []membership.Status, verdicts []membership.Verdict) podAnswer {
	a := podAnswer{memberships: map[string]string{}}
	answered := map[string]bool{}
	for _, s := range held {
		group := s.GroupNamespace + "/" + s.GroupName
		a.memberships[group] = s.GroupUID
		answered[group] = true
		p, ok := statusProblem(s)
		a.statuses = append(a.statuses, membershipStatus(s, p.reason))
		if ok {
			p.required = required(pod, s.GroupNamespace, s.GroupName, s.Interface)
			a.problems = append(a.problems, p)
		}
	}
	for _, v := range verdicts {
		p := podProblem{
			state:     v.State,
			reason:    v.Reason,
			iface:     v.Interface,
			message:   oneLine(v.Message),
			required:  true,
			transient: v.Reason == membership.ReasonGroupDeleting, // GroupDeleted will tell
		}
		if v.GroupName != "" {
			p.group = v.GroupNamespace + "/" + v.GroupName
			p.required = required(pod, v.GroupNamespace, v.GroupName, v.Interface)
			answered[p.group] = true
			a.statuses = append(a.statuses, v1alpha1.MembershipStatus{
				Group:     p.group,
				State:     v1alpha1.MembershipState(v.State),
				Interface: v.Interface,
				Reason:    v.Reason,
				Message:   truncate(p.message, maxStatusMessage),
			})
		}
		a.problems = append(a.problems, p)
	}
	for _, r := range pod.Requests {
		if group := r.Namespace + "/" + r.Name; !answered[group] {
			answered[group] = true
			a.problems = append(a.problems, podProblem{state: membership.Joining, reason: v1alpha1.ReasonJoining, group: group,
				iface: r.Interface, required: r.Required, transient: true})
		}
	}
	slices.SortStableFunc(a.statuses, func(x, y v1alpha1.MembershipStatus) int {
		return cmp.Or(strings.Compare(x.Group, y.Group), strings.Compare(x.Interface, y.Interface), cmp.Compare(x.State, y.State))
	})
	slices.SortStableFunc(a.problems, func(x, y podProblem) int {
		return cmp.Or(cmp.Compare(severity(x), severity(y)), strings.Compare(x.group, y.group), strings.Compare(x.iface, y.iface))
	})
	a.condition = groupsJoined(len(pod.Requests), a.problems)
	return a
}

// answerEnded is the last answer to a pod whose sandbox has ended.
func answerEnded() podAnswer {
	return podAnswer{ended: true, condition: corev1.PodCondition{
		Type:    v1alpha1.ConditionGroupsJoined,
		Status:  corev1.ConditionFalse,
		Reason:  v1alpha1.ReasonSandboxEnded,
		Message: "the pod's sandbox has ended and all its groups were left",
	}}
}

func groupsJoined(requests int, problems []podProblem) corev1.PodCondition {
	c := corev1.PodCondition{Type: v1alpha1.ConditionGroupsJoined}
	var needed, optional []podProblem
	for _, p := range problems {
		if p.required {
			needed = append(needed, p)
		} else {
			optional = append(optional, p)
		}
	}
	switch {
	case len(needed) > 0:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, needed[0].reason, describe(needed, maxConditionMessage)
	case requests == 0:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, v1alpha1.ReasonAllJoined, "no group is asked for"
	case len(optional) > 0:
		c.Status, c.Reason = corev1.ConditionTrue, v1alpha1.ReasonAllJoined
		c.Message = truncate("all required groups are joined; not joined: "+describe(optional, maxConditionMessage), maxConditionMessage)
	default:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, v1alpha1.ReasonAllJoined, "all groups are joined"
	}
	return c
}

// severity sorts what a user has to act upon before what passes by itself.
func severity(p podProblem) int {
	switch {
	case p.group == "":
		return 0
	case p.state == membership.Refused:
		return 1
	case p.state == membership.Failing:
		return 2
	case p.state == membership.Waiting:
		return 3
	}
	return 4
}

// describe names the first few problems and counts the others.
func describe(problems []podProblem, limit int) string {
	named := problems[:min(len(problems), maxConditionProblems)]
	rest := ""
	if n := len(problems) - len(named); n > 0 {
		rest = fmt.Sprintf("; and %d more", n)
	}
	room := (limit - len(rest)) / len(named)
	texts := make([]string, len(named))
	for i, p := range named {
		texts[i] = truncate(p.String(), room-len("; "))
	}
	return strings.Join(texts, "; ") + rest
}

// required: as soon as one request that this group and interface answer is. An
// interface is "" where none of them could be told.
func required(pod membership.Pod, namespace, name, iface string) bool {
	matched := false
	for _, r := range pod.Requests {
		if r.Namespace != namespace || r.Name != name || (iface != "" && r.Interface != "" && r.Interface != iface) {
			continue
		}
		if r.Required {
			return true
		}
		matched = true
	}
	return !matched
}

func statusProblem(s membership.Status) (podProblem, bool) {
	p := podProblem{
		state:   s.State,
		group:   s.GroupNamespace + "/" + s.GroupName,
		iface:   s.Interface,
		message: oneLine(s.Message),
	}
	switch s.State {
	case membership.Failing:
		p.reason = v1alpha1.ReasonJoinFailed
	case membership.Refused:
		p.reason = v1alpha1.ReasonUnsupportedAddress
		if errors.Is(s.Err, syscall.ENOSYS) {
			p.reason = v1alpha1.ReasonIWARP
		}
	case membership.Waiting:
		p.reason, p.transient = v1alpha1.ReasonWaiting, true
	case membership.Joining:
		p.reason, p.transient = v1alpha1.ReasonJoining, true
	default: // Joined; Leaving is told by what is wanted instead
		return p, false
	}
	return p, true
}

func membershipStatus(s membership.Status, reason string) v1alpha1.MembershipStatus {
	m := v1alpha1.MembershipStatus{
		Group:     s.GroupNamespace + "/" + s.GroupName,
		State:     v1alpha1.MembershipState(s.State),
		Interface: s.Interface,
		Device:    s.Device,
		Port:      int32(s.Port),
		Epoch:     s.Epoch,
		Reason:    reason,
		Message:   truncate(oneLine(s.Message), maxStatusMessage),
	}
	if s.State != membership.Joined {
		return m
	}
	m.Mode = v1alpha1.FullMember
	if s.Mode == rdma.SendOnlyFullMember {
		m.Mode = v1alpha1.SendOnlyFullMember
	}
	index := int32(s.Params.GIDIndex)
	m.MGID = s.Params.MGID.String()
	m.MLID = int32(s.Params.MLID)
	m.QKey = s.Params.QKey
	m.GIDIndex = &index
	m.GIDType = string(s.Params.GIDType)
	if s.Params.GID.IsValid() {
		m.GID = s.Params.GID.String()
	}
	m.PKey = int32(s.Params.PKey)
	if s.Params.PKeyIndex >= 0 {
		pkeyIndex := int32(s.Params.PKeyIndex)
		m.PKeyIndex = &pkeyIndex
	}
	m.TrafficClass = int32(s.Params.TrafficClass)
	if s.LinkLayer == rdma.LinkLayerEthernet {
		m.TrafficClass = int32(s.TrafficClass) // rdma_cm tells none there
	}
	return m
}

// statusAnnotation is the annotation's value: as many of the statuses, in order, as
// fit beside the pod's other annotations; "" where there is no room for it at all.
func statusAnnotation(statuses []v1alpha1.MembershipStatus, others map[string]string) (value string, shown int, err error) {
	room := maxAnnotations - len(v1alpha1.GroupStatusAnnotation)
	for k, v := range others {
		if k != v1alpha1.GroupStatusAnnotation {
			room -= len(k) + len(v)
		}
	}
	if room < len("[]") {
		return "", 0, nil
	}
	room = min(room, maxGroupStatus) - len("[]")
	var b strings.Builder
	b.WriteByte('[')
	for _, s := range statuses {
		element, err := json.Marshal(s)
		if err != nil {
			return "", 0, fmt.Errorf("encoding the status of %s: %w", s.Group, err)
		}
		if len(element)+len(",") > room {
			break
		}
		room -= len(element) + len(",")
		if shown > 0 {
			b.WriteByte(',')
		}
		b.Write(element)
		shown++
	}
	b.WriteByte(']')
	return b.String(), shown, nil
}
