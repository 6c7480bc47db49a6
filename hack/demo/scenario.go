package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

const (
	ticks = "default/ticks" // a group with members on the nodes on RoCE
	late  = "default/late"  // a group that receiver-1 alone asks for

	// The nodes: node-1 to node-3 are on RoCE, node-4 is on InfiniBand.
	roceNodes, infiniBandNodes = 3, 1
)

// scenario is the main job.
func (d *demo) scenario() []step {
	return []step{
		{"join", "groups and pods are applied, and the pods' interfaces join", d.join},
		{"pod-end", "a pod ends: a member for its grace period, and then no more", d.podEnd},
		{"completion", "a pod completes: its object stays, its membership doesn't", d.completion},
		{"stale-cache", "an agent that hasn't heard of a group's deletion is asked to join it", d.staleCache},
		{"group-deletion", "a group is deleted under its pods; one agent hears of it late", d.groupDeletion},
		{"again", "the group is applied again, no pod is touched", d.again},
		{"infiniband", "a pod on InfiniBand joins, in a partition of its own", d.infiniBand},
		{"failover", "another subnet manager takes over, and the pod joins again", d.failover},
		{"refused-node", "nodes are members without a pod; one of them can't be, and says why", d.refusedNode},
		{"last-leave", "the last pods end", d.lastLeave},
		{"nothing-left", "the groups are deleted; what is left is counted", d.nothingLeft},
	}
}

func (d *demo) join(ctx context.Context) error {
	if err := d.kubectl(ctx, "apply", "-f", filepath.Join(d.root, "config", "samples")); err != nil {
		return err
	}
	// Pods before their groups: either order gives the same.
	for _, file := range []string{"receivers", "ticks", "late"} {
		if err := d.apply(ctx, file); err != nil {
			return err
		}
	}
	err := d.eventually(ctx, "all pods on the nodes on RoCE have joined", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if err := v.allJoined(); err != nil {
			return err
		}
		nodes := map[string]bool{}
		for _, h := range v.members(v.address(ticks)) {
			nodes[h.node.Name] = true
		}
		if len(nodes) != roceNodes {
			return fmt.Errorf("in the fabric %s has members on %d nodes: %s", ticks, len(nodes), places(v.members(v.address(ticks))))
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	for group, nodes := range map[string]string{ticks: "3/3", late: "1/1", "default/market-data": "3/3", "default/orders": "1/1"} {
		if err := d.groupReady(ctx, group, nodes, v1alpha1.ReasonAllJoined); err != nil {
			return err
		}
	}
	if err := d.kubectl(ctx, "get", "mcg"); err != nil {
		return err
	}
	return d.show(ctx)
}

// apply is kubectl apply of one of the demo's own manifests.
func (d *demo) apply(ctx context.Context, name string) error {
	return d.kubectl(ctx, "apply", "-f", filepath.Join(d.root, "hack", "demo", "manifests", name+".yaml"))
}

// show prints the table, and has API and fabric agree.
func (d *demo) show(ctx context.Context) error {
	var v *view
	err := d.eventually(ctx, "the API and the fabric agree", func(ctx context.Context) error {
		var err error
		if v, err = d.look(ctx); err != nil {
			return err
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	return d.table(v)
}

// groupReady waits for the sum in a group's status.
func (d *demo) groupReady(ctx context.Context, group, wantSummary, wantReason string) error {
	return d.eventually(ctx, fmt.Sprintf("group %s shows %s, reason %s", group, wantSummary, wantReason), func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		status, reason, message, summary := ready(v.groups[group])
		if summary != wantSummary || reason != wantReason {
			return fmt.Errorf("it shows %s, Ready=%s, reason %s: %s", summary, status, reason, message)
		}
		return nil
	})
}

func (d *demo) podEnd(ctx context.Context) error {
	node, ticksAddr, uid, err := d.podAndGroup(ctx, "receiver-1", ticks)
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "pod", "receiver-1", "--wait=false"); err != nil {
		return err
	}
	err = d.eventually(ctx, "the pod is being deleted and still a member", func(ctx context.Context) error {
		before, err := d.look(ctx)
		if err != nil {
			return err
		}
		pod, ok := before.pods["default/receiver-1"]
		if !ok {
			return fmt.Errorf("%w: the pod went without having been seen in its grace period", errNever)
		}
		if pod.DeletionTimestamp == nil {
			return fmt.Errorf("it isn't being deleted yet")
		}
		if _, running := d.cluster.PodNetNS(&pod); !running {
			return fmt.Errorf("%w: its sandbox stopped without having been seen in its grace period", errNever)
		}
		// What was seen before the sandbox was seen to run counts.
		if !slices.ContainsFunc(before.members(ticksAddr), func(h held) bool { return h.node == node }) {
			return fmt.Errorf("%w: %s has left although the pod's sandbox still runs", errNever, node.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.say("API: the pod is being deleted. fabric: %s is still a member of %s", node.Name, ticksAddr)
	err = d.eventually(ctx, "the pod has ended and its node has left", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if _, there := v.pods["default/receiver-1"]; there {
			return fmt.Errorf("the pod is still there")
		}
		for _, h := range v.held {
			if h.node == node && (h.Group == ticksAddr || h.Group == v.address(late)) {
				return fmt.Errorf("in the fabric %s is still a member of %s", node.Name, h.Group)
			}
		}
		if v.entry(node.Name, uid) {
			return fmt.Errorf("the MulticastNode %s still has an entry for %s", node.Name, ticks)
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	d.say("API: the pod is gone, %s has no entry for %s. fabric: left, and the switch doesn't deliver there", node.Name, ticks)
	return d.groupReady(ctx, ticks, "2/2", v1alpha1.ReasonAllJoined)
}

// podAndGroup is a pod's node, and a group's address and UID.
func (d *demo) podAndGroup(ctx context.Context, pod, group string) (node *localcluster.Node, address netip.Addr, uid types.UID, err error) {
	v, err := d.look(ctx)
	if err != nil {
		return nil, netip.Addr{}, "", err
	}
	p, g := v.pods["default/"+pod], v.groups[group]
	if node = d.cluster.Node(p.Spec.NodeName); node == nil {
		return nil, netip.Addr{}, "", fmt.Errorf("pod %s is on no hollow node", pod)
	}
	return node, v.address(group), g.UID, nil
}

func (d *demo) completion(ctx context.Context) error {
	// The hollow node's way to let a container exit by itself.
	if err := d.kubectl(ctx, "annotate", "pod", "batch", localcluster.CompletesAfterAnnotation+"=1ms"); err != nil {
		return err
	}
	err := d.eventually(ctx, "the completed pod is left, its object stays", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		pod, ok := v.pods["default/batch"]
		if !ok {
			return fmt.Errorf("%w: the pod's object is gone", errNever)
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("its phase is %s", pod.Status.Phase)
		}
		if n := len(v.members(v.address(ticks))); n != 2 {
			return fmt.Errorf("in the fabric %s has %d members, want receiver-2 and receiver-3: %s", ticks, n, places(v.members(v.address(ticks))))
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	d.say("API: batch is Succeeded. fabric: receiver-2 on the same node is a member, batch isn't")
	return nil
}

func (d *demo) again(ctx context.Context) error {
	if err := d.apply(ctx, "ticks"); err != nil {
		return err
	}
	err := d.eventually(ctx, "the pods have joined again", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if err := v.allJoined(); err != nil {
			return err
		}
		if n := len(v.members(v.address(ticks))); n != 2 {
			return fmt.Errorf("in the fabric %s has %d members: %s", ticks, n, places(v.members(v.address(ticks))))
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	return d.show(ctx)
}

func (d *demo) lastLeave(ctx context.Context) error {
	if err := d.kubectl(ctx, "delete", "pod", "--all"); err != nil {
		return err
	}
	err := d.eventually(ctx, "nobody is a member of anything", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if len(v.pods) > 0 {
			return fmt.Errorf("%d pods are left", len(v.pods))
		}
		if len(v.held) > 0 {
			return fmt.Errorf("members in the fabric: %s", places(v.held))
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	if err := d.groupReady(ctx, ticks, "0/0", v1alpha1.ReasonNoMembers); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "mcg"); err != nil {
		return err
	}
	return d.show(ctx)
}

func (d *demo) nothingLeft(ctx context.Context) error {
	if err := d.kubectl(ctx, "delete", "mcg", "--all", "--all-namespaces"); err != nil {
		return err
	}
	err := d.eventually(ctx, "no group, no entry and no open id is left", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		for name, group := range v.groups {
			return fmt.Errorf("group %s is there, finalizers %v", name, group.Finalizers)
		}
		if len(v.mdb) > 0 || len(v.subnet) > 0 {
			return fmt.Errorf("the switch still delivers %v, the subnet manager has %v", v.mdb, v.subnet)
		}
		for _, node := range d.cluster.Nodes {
			files, ids, namespaces := node.Machine.OpenHandles()
			if files > 1 || ids > 0 || namespaces > 0 {
				return fmt.Errorf("%s has %d files of rdma_cm, %d ids, %d namespaces open, want the agent's one event channel", node.Name, files, ids, namespaces)
			}
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	d.say("API: no MulticastGroup, so no finalizer; no entry in any MulticastNode")
	d.say("fabric: no membership, neither the switch nor the subnet manager delivers anything; open on each node: the agent's event channel, no id, no namespace")
	return nil
}
