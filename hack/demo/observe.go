package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	// interfaces are the nodes' own RDMA interfaces.
	interfaces map[string]string
	// subnet are the groups of the subnet manager that have been joined, by MGID.
	subnet map[netip.Addr]rdmatest.SubnetGroup
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
	v := &view{groups: map[string]v1alpha1.MulticastGroup{}, nodes: map[string]v1alpha1.MulticastNode{}, pods: map[string]corev1.Pod{}, interfaces: map[string]string{}}
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
		v.interfaces[node.Name] = node.Interface
		for _, m := range node.Machine.Memberships() {
			v.held = append(v.held, held{node: node, Member: m})
		}
	}
	v.mdb = d.cluster.Fabric.MDB()
	v.subnet = d.cluster.Subnet.MDB()
	maps.DeleteFunc(v.subnet, func(_ netip.Addr, g rdmatest.SubnetGroup) bool { return g.Configured })
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

// address, or verbatim MGID, of a group that exists.
func (v *view) address(group string) netip.Addr {
	spec := v.groups[group].Spec
	addr, err := netip.ParseAddr(cmp.Or(spec.Address, spec.MGID))
	if err != nil {
		return netip.Addr{}
	}
	return addr
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
		if h.node.InfiniBand {
			return fmt.Sprintf("member, MLID %#x", v.subnet[mgid(t.status)].MLID)
		}
		return fmt.Sprintf("member, IGMP users %d", h.node.Machine.IGMP(h.NetNS, h.Interface)[h.Group])
	}
	return "none"
}

// mgid that a pod was told; the zero Addr if none.
func mgid(status v1alpha1.MembershipStatus) netip.Addr {
	addr, err := netip.ParseAddr(status.MGID)
	if err != nil {
		return netip.Addr{}
	}
	return addr
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
