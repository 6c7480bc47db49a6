package controllers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
)

// planned is one planning's result, to be told to the API: a pure function of
// its fields.
type planned struct {
	groups   []membership.Group
	pods     []membership.Pod
	objects  map[string]*corev1.Pod // the API's pods by the sandbox's pod UID
	verdicts []membership.Verdict
	held     []membership.Status
}

// numbers are the entries' counters: a membership shared by several pods counts
// for each of them, and for the node where it has it by itself.
func (p planned) numbers() map[types.UID]v1alpha1.NodeGroup {
	numbers := map[types.UID]v1alpha1.NodeGroup{}
	generation := map[string]int64{}
	for _, g := range p.groups {
		generation[g.UID] = g.Generation
	}
	add := func(uid, namespace, name string, members, joined, failing int32, message string) {
		n, ok := numbers[types.UID(uid)]
		if !ok {
			n = v1alpha1.NodeGroup{Namespace: namespace, Name: name, UID: types.UID(uid), Generation: generation[uid]}
		}
		n.Members += members
		n.Joined += joined
		n.Failing += failing
		if message != "" && (n.Message == "" || message < n.Message) {
			n.Message = message
		}
		numbers[types.UID(uid)] = n
	}
	for _, s := range p.held {
		holders := int32(len(s.Holders))
		switch s.State {
		case membership.Leaving:
		case membership.Joined:
			add(s.GroupUID, s.GroupNamespace, s.GroupName, holders, holders, 0, "")
		case membership.Failing, membership.Refused:
			add(s.GroupUID, s.GroupNamespace, s.GroupName, holders, 0, holders, p.entryMessage(s.Holders, s.Interface, s.Message))
		default:
			add(s.GroupUID, s.GroupNamespace, s.GroupName, holders, 0, 0, "")
		}
	}
	for _, v := range p.verdicts {
		if v.GroupUID == "" {
			continue
		}
		switch v.Reason {
		case membership.ReasonNotAllowed, membership.ReasonModeNotAllowed,
			membership.ReasonInterfaceNotFound, membership.ReasonInterfaceNotRDMA:
			continue // the request's own fault is none of the group's concern
		case membership.ReasonNotAccepted, membership.ReasonGroupDeleting:
			continue // said by the group itself
		}
		var failing int32
		message := ""
		if v.State == membership.Refused {
			failing, message = 1, p.entryMessage([]string{v.Holder}, v.Interface, v.Message)
		}
		add(v.GroupUID, v.GroupNamespace, v.GroupName, 1, 0, failing, message)
	}
	return numbers
}

func (p planned) entryMessage(holders []string, iface, message string) string {
	text := ""
	for _, pod := range p.pods {
		if slices.Contains(holders, pod.UID) {
			text = "pod " + pod.Namespace + "/" + pod.Name
			break
		}
	}
	if text == "" && slices.Contains(holders, membership.NodeHolder) {
		text = "the node"
	}
	if iface != "" {
		text += " on " + iface
	}
	return truncate(text+": "+oneLine(message), maxEntryMessage)
}

// answers are those due to pods that the API has: each with a live sandbox and
// something to tell, and each whose sandbox has ended and that was told
// something before.
func (p planned) answers(apiPods []corev1.Pod) map[types.NamespacedName]podAnswer {
	held := map[string][]membership.Status{}
	for _, s := range p.held {
		for _, holder := range s.Holders {
			held[holder] = append(held[holder], s)
		}
	}
	verdicts := map[string][]membership.Verdict{}
	for _, v := range p.verdicts {
		verdicts[v.Holder] = append(verdicts[v.Holder], v)
	}
	existing := map[string]string{}
	for _, g := range p.groups {
		if !g.Deleting {
			existing[g.Namespace+"/"+g.Name] = g.UID
		}
	}
	asking := map[string]membership.Pod{}
	for _, pod := range p.pods {
		asking[pod.UID] = pod
	}
	answers := map[types.NamespacedName]podAnswer{}
	live := map[types.UID]bool{}
	for sandboxUID, object := range p.objects {
		live[object.UID] = true
		pod, asks := asking[sandboxUID]
		if !asks && len(held[sandboxUID]) == 0 && !wasAnswered(object) {
			continue
		}
		a := answerPod(pod, held[sandboxUID], verdicts[sandboxUID])
		a.uid = object.UID
		a.existing = map[string]string{}
		for _, r := range pod.Requests {
			group := r.Namespace + "/" + r.Name
			if uid, ok := existing[group]; ok {
				a.existing[group] = uid
			}
		}
		answers[podKey(object)] = a
	}
	for i := range apiPods {
		object := &apiPods[i]
		if live[object.UID] || !wasAnswered(object) || len(held[string(object.UID)]) > 0 {
			continue // not ended, of no interest, or not left yet
		}
		a := answerEnded()
		a.uid = object.UID
		answers[podKey(object)] = a
	}
	return answers
}

func wasAnswered(pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.GroupStatusAnnotation] != "" || podCondition(pod, v1alpha1.ConditionGroupsJoined) != nil
}

// unsatisfied has every scope that was looked into: true where something that a
// look at its interfaces may change isn't as wanted.
func (p planned) unsatisfied() map[string]bool {
	scopes := map[string]bool{membership.NodeScope: false}
	scopeOf := map[string]string{}
	for _, pod := range p.pods {
		if pod.NetNS != "" {
			scopes[pod.SandboxID] = false
		}
		scopeOf[pod.UID] = pod.SandboxID
	}
	mark := func(scope string) {
		if _, ok := scopes[scope]; ok {
			scopes[scope] = true
		}
	}
	for _, s := range p.held {
		if s.State != membership.Joined && s.State != membership.Leaving {
			mark(s.Scope)
		}
	}
	for _, v := range p.verdicts {
		switch v.Reason {
		case membership.ReasonInterfacesUnknown, membership.ReasonInterfaceNotFound, membership.ReasonInterfaceNotRDMA,
			membership.ReasonNoRDMAInterface, membership.ReasonNotSelected, membership.ReasonNoInterfaceAddress:
			mark(scopeOf[v.Holder])
			mark(membership.NodeScope)
		}
	}
	return scopes
}
