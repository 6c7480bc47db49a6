package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

// staleCache needs the read past the cache that comes before a first join: the
// group is gone, and the agent's cache says that it is there and accepted.
func (d *demo) staleCache(ctx context.Context) error {
	node := d.cluster.Node("node-1")
	v, err := d.look(ctx)
	if err != nil {
		return err
	}
	lateAddr := v.address(late)
	node.API.StallGroupWatches()
	defer node.API.Resume()
	if err := d.kubectl(ctx, "delete", "mcg", "late"); err != nil {
		return err
	}
	d.say("API: the group is gone. The watch of %s's agent is stalled: its cache still has the group", node.Name)
	node.API.Forget()
	if err := d.apply(ctx, "latecomer"); err != nil {
		return err
	}
	err = d.eventually(ctx, "the agent wrote its entry, asked for the group past its cache, and took the entry back", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if held := v.members(lateAddr); len(held) > 0 {
			return fmt.Errorf("%w: a group that is gone was joined: %s", errNever, places(held))
		}
		if err := protocolFollowed(node.API.Calls(), node.Name, "late"); err != nil {
			return err
		}
		pod := v.pods["default/latecomer"]
		if joined(&pod) == nil {
			return fmt.Errorf("%w: the pod was told that it has joined", errNever)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range node.API.Calls() {
		if concerns(c, node.Name, "late") {
			d.say("agent: %s %s → %d", c.Method, c.Path, c.Status)
		}
	}
	node.API.Resume()
	err = d.eventually(ctx, "with the watch running again the pod is told that there is no such group", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if held := v.members(lateAddr); len(held) > 0 {
			return fmt.Errorf("%w: a group that is gone was joined: %s", errNever, places(held))
		}
		pod := v.pods["default/latecomer"]
		for _, c := range pod.Status.Conditions {
			if c.Type == v1alpha1.ConditionGroupsJoined && c.Status == corev1.ConditionFalse && c.Reason == "UnknownGroup" {
				d.say("API: latecomer is told: %s", c.Message)
				return v.agree()
			}
		}
		return joined(&pod)
	})
	if err != nil {
		return err
	}
	d.say("fabric: no member of %s", lateAddr)
	return d.kubectl(ctx, "delete", "pod", "latecomer")
}

// concerns says whether a call is part of the leave protocol for a group.
func concerns(c localcluster.APICall, node, group string) bool {
	return strings.HasSuffix(c.Path, "/multicastnodes/"+node+"/status") && c.Method != "GET" ||
		strings.HasSuffix(c.Path, "/multicastgroups/"+group) && c.Method == "GET"
}

// protocolFollowed looks for: entry written, group read live and not found,
// entry written again (taken back).
func protocolFollowed(calls []localcluster.APICall, node, group string) error {
	stage := 0
	for _, c := range calls {
		if !concerns(c, node, group) {
			continue
		}
		write := c.Method != "GET"
		switch {
		case stage == 0 && write && c.Status == 200, stage == 1 && !write && c.Status == 404, stage == 2 && write && c.Status == 200:
			stage++
		}
	}
	switch stage {
	case 0:
		return fmt.Errorf("no entry was written")
	case 1:
		return fmt.Errorf("the entry was written, the group wasn't read")
	case 2:
		return fmt.Errorf("the group was found to be gone, the entry wasn't taken back")
	}
	return nil
}

// groupDeletion needs the controller's wait: the group must not go while the
// node that hasn't heard of it is a member.
func (d *demo) groupDeletion(ctx context.Context) error {
	slow, address, uid, err := d.podAndGroup(ctx, "receiver-3", ticks)
	if err != nil {
		return err
	}
	slow.API.StallGroupWatches()
	defer slow.API.Resume()
	if err := d.kubectl(ctx, "delete", "mcg", "ticks", "--wait=false"); err != nil {
		return err
	}
	err = d.eventually(ctx, "node-2 has left, "+slow.Name+" holds the group up, and the group says so", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		group, there := v.groups[ticks]
		if !there {
			return fmt.Errorf("%w: the group is gone from the API while the fabric has members: %s", errNever, places(v.members(address)))
		}
		held := v.members(address)
		if len(held) != 1 || held[0].node != slow {
			return fmt.Errorf("members in the fabric: %s", places(held))
		}
		_, reason, message, _ := ready(group)
		if reason != v1alpha1.ReasonLeaving || !strings.Contains(message, slow.Name) || strings.Contains(message, "node-2") {
			return fmt.Errorf("its condition Ready has reason %s: %s", reason, message)
		}
		d.say("API: the group is being deleted, reason %s: %s", reason, message)
		d.say("fabric: members are left on %s", places(held))
		return nil
	})
	if err != nil {
		return err
	}
	slow.API.Resume()
	err = d.eventually(ctx, "all nodes have left and the group is gone", func(ctx context.Context) error {
		// The API is looked at first: once the group is gone, nobody may be a
		// member any more.
		var group v1alpha1.MulticastGroup
		err := d.cluster.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "ticks"}, &group)
		if err == nil {
			return fmt.Errorf("the group is still there, finalizers %v", group.Finalizers)
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if held := v.members(address); len(held) > 0 {
			return fmt.Errorf("%w: the group is gone and the fabric has members: %s", errNever, places(held))
		}
		for _, node := range d.cluster.Nodes {
			if v.entry(node.Name, uid) {
				return fmt.Errorf("%w: the group is gone and %s has an entry for it", errNever, node.Name)
			}
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	d.say("API: the group is gone. fabric: no member, and the switch delivers it nowhere")
	return d.eventually(ctx, "there is an event on each pod that lost the group", func(ctx context.Context) error {
		for _, pod := range []string{"receiver-2", "receiver-3"} {
			event, err := d.event(ctx, pod)
			if err != nil {
				return err
			}
			d.say("event on %s: %s: %s", pod, event.Reason, event.Note)
		}
		return nil
	})
}

// event about the group on a pod.
func (d *demo) event(ctx context.Context, pod string) (*eventsv1.Event, error) {
	var events eventsv1.EventList
	if err := d.cluster.Client.List(ctx, &events, client.InNamespace("default")); err != nil {
		return nil, err
	}
	for i := range events.Items {
		e := &events.Items[i]
		if e.Regarding.Kind == "Pod" && e.Regarding.Name == pod && strings.Contains(e.Note, ticks) {
			return e, nil
		}
	}
	return nil, fmt.Errorf("no event on pod %s names %s, of %d events", pod, ticks, len(events.Items))
}
