package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// view is what the API says and what the fabric says, looked at together.
type view struct {
	groups map[string]v1alpha1.MulticastGroup // by namespace/name
	nodes  map[string]v1alpha1.MulticastNode
	pods   map[string]corev1.Pod
	told   []told
	held   []held
	mdb    map[netip.Addr][]rdmatest.SwitchPort
}

// told is one membership as a pod was told of it.
type told struct {
	pod    corev1.Pod
	netns  string
	status v1alpha1.MembershipStatus
}

// held is one membership in a machine's own tables.
type held struct {
	node *localcluster.Node
	rdmatest.Member
}

func (d *demo) look(ctx context.Context) (*view, error) {
	v := &view{groups: map[string]v1alpha1.MulticastGroup{}, nodes: map[string]v1alpha1.MulticastNode{}, pods: map[string]corev1.Pod{}}
	var groups v1alpha1.MulticastGroupList
	if err := d.cluster.Client.List(ctx, &groups); err != nil {
		return nil, err
	}
	for _, g := range groups.Items {
		v.groups[g.Namespace+"/"+g.Name] = g
	}
	var nodes v1alpha1.MulticastNodeList
	if err := d.cluster.Client.List(ctx, &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes.Items {
		v.nodes[n.Name] = n
	}
	var pods corev1.PodList
	if err := d.cluster.Client.List(ctx, &pods); err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		v.pods[pod.Namespace+"/"+pod.Name] = pod
		statuses, err := groupStatus(&pod)
		if err != nil {
			return nil, err
		}
		netns, _ := d.cluster.PodNetNS(&pod)
		for _, status := range statuses {
			v.told = append(v.told, told{pod: pod, netns: netns, status: status})
		}
	}
	slices.SortFunc(v.told, func(a, b told) int {
		return cmp.Or(cmp.Compare(a.status.Group, b.status.Group), cmp.Compare(a.pod.Spec.NodeName, b.pod.Spec.NodeName),
			cmp.Compare(a.pod.Name, b.pod.Name), cmp.Compare(a.status.Interface, b.status.Interface))
	})
	for _, node := range d.cluster.Nodes {
		for _, m := range node.Machine.Memberships() {
			v.held = append(v.held, held{node: node, Member: m})
		}
	}
	v.mdb = d.cluster.Fabric.MDB()
	return v, nil
}

// groupStatus is what a pod was told.
func groupStatus(pod *corev1.Pod) ([]v1alpha1.MembershipStatus, error) {
	text, ok := pod.Annotations[v1alpha1.GroupStatusAnnotation]
	if !ok {
		return nil, nil
	}
	var statuses []v1alpha1.MembershipStatus
	if err := json.Unmarshal([]byte(text), &statuses); err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s/%s: %w", v1alpha1.GroupStatusAnnotation, pod.Namespace, pod.Name, err)
	}
	return statuses, nil
}

// address of a group that exists.
func (v *view) address(group string) netip.Addr {
	addr, err := netip.ParseAddr(v.groups[group].Spec.Address)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// agree says in what the API and the fabric differ: each membership that a pod
// was told of as joined is in its node's tables, and the other way round; each
// group that a machine is a member of has an entry in the MulticastNode, and the
// other way round.
func (v *view) agree() error {
	type place struct{ node, netns, iface, address string }
	api, entries := map[place]bool{}, map[[2]string]bool{}
	for _, t := range v.told {
		if t.status.State != v1alpha1.StateJoined {
			continue
		}
		p := place{t.pod.Spec.NodeName, t.netns, t.status.Interface, v.address(t.status.Group).String()}
		api[p] = true
		entries[[2]string{p.node, t.status.Group}] = true
	}
	fabric, delivered := map[place]bool{}, map[string]bool{}
	for _, h := range v.held {
		p := place{h.node.Name, h.NetNS, h.Interface, h.Group.String()}
		fabric[p] = true
		if !api[p] {
			return fmt.Errorf("the fabric has a member of %s on %s, interface %s, namespace %q, that no pod was told of", p.address, p.node, p.iface, p.netns)
		}
		if !h.SendOnly && h.node.Machine.IGMP(h.NetNS, h.Interface)[h.Group] < 1 {
			return fmt.Errorf("rdma_cm on %s has a member of %s, its interface %s has not", p.node, p.address, p.iface)
		}
		if !h.SendOnly {
			delivered[p.node+" "+p.address] = true
		}
	}
	for address, ports := range v.mdb {
		for _, port := range ports {
			if !delivered[port.Node+" "+address.String()] {
				return fmt.Errorf("the switch delivers %s to %s, which has no member", address, port.Node)
			}
			delete(delivered, port.Node+" "+address.String())
		}
	}
	for missing := range delivered {
		return fmt.Errorf("the switch doesn't deliver to a member: %s", missing)
	}
	for p := range api {
		if !fabric[p] {
			return fmt.Errorf("a pod on %s was told that interface %s has joined %s, the fabric doesn't have it", p.node, p.iface, p.address)
		}
	}
	for _, n := range v.nodes {
		for _, entry := range n.Status.Groups {
			name := entry.Namespace + "/" + entry.Name
			if !entries[[2]string{n.Name, name}] {
				return fmt.Errorf("the MulticastNode %s has an entry for %s, and no pod there has joined it", n.Name, name)
			}
			delete(entries, [2]string{n.Name, name})
		}
	}
	for missing := range entries {
		return fmt.Errorf("a pod on %s has joined %s, and the MulticastNode has no entry for it", missing[0], missing[1])
	}
	return nil
}

// members of a group's address in the fabric's tables.
func (v *view) members(address netip.Addr) []held {
	var found []held
	for _, h := range v.held {
		if h.Group == address {
			found = append(found, h)
		}
	}
	return found
}

// entry says whether a node's MulticastNode names a group's UID.
func (v *view) entry(node string, uid types.UID) bool {
	return slices.ContainsFunc(v.nodes[node].Status.Groups, func(g v1alpha1.NodeGroup) bool { return g.UID == uid })
}

// allJoined says which pod hasn't joined all that it asked for.
func (v *view) allJoined() error {
	for name, pod := range v.pods {
		if pod.Annotations[v1alpha1.GroupsAnnotation] == "" || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if err := joined(&pod); err != nil {
			return fmt.Errorf("pod %s on %s: %w", name, pod.Spec.NodeName, err)
		}
	}
	return nil
}

func joined(pod *corev1.Pod) error {
	for _, c := range pod.Status.Conditions {
		if c.Type != v1alpha1.ConditionGroupsJoined {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("condition %s is %s, reason %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return fmt.Errorf("no condition %s yet, phase %s", v1alpha1.ConditionGroupsJoined, pod.Status.Phase)
}

// ready is the group's condition Ready.
func ready(g v1alpha1.MulticastGroup) (status metav1.ConditionStatus, reason, message, summary string) {
	if g.Status.Nodes != nil {
		summary = g.Status.Nodes.Summary
	}
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Status, c.Reason, c.Message, summary
	}
	return "", "", "", summary
}

// table prints groups × nodes × pods as the pods were told, beside what the
// machines' own tables have.
func (d *demo) table(v *view) error {
	if len(v.told) == 0 && len(v.held) == 0 {
		d.say("(no pod has been told of a membership, no machine has one)")
		return nil
	}
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "   GROUP\tNODE\tPOD\tINTERFACE\tSTATE\tMGID\tGID INDEX\tEPOCH\tIN THE FABRIC")
	for _, t := range v.told {
		index := "-"
		if t.status.GIDIndex != nil {
			index = fmt.Sprint(*t.status.GIDIndex)
		}
		fmt.Fprintf(w, "   %s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", t.status.Group, t.pod.Spec.NodeName, t.pod.Name,
			cmp.Or(t.status.Interface, "-"), t.status.State, cmp.Or(t.status.MGID, "-"), index, t.status.Epoch, v.inFabric(t))
	}
	return w.Flush()
}

// inFabric is what the machine's own tables have of a membership.
func (v *view) inFabric(t told) string {
	for _, h := range v.held {
		if h.node.Name != t.pod.Spec.NodeName || h.NetNS != t.netns || h.Interface != t.status.Interface || h.Group != v.address(t.status.Group) {
			continue
		}
		if h.SendOnly {
			return "send-only member"
		}
		return fmt.Sprintf("member, IGMP users %d", h.node.Machine.IGMP(h.NetNS, h.Interface)[h.Group])
	}
	return "none"
}

// places lists memberships for a message.
func places(members []held) string {
	var names []string
	for _, m := range members {
		names = append(names, fmt.Sprintf("%s %s on %s (namespace %q)", m.node.Name, m.Group, m.Interface, m.NetNS))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
