package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const (
	trades = "default/trades" // a group with a receiver on InfiniBand
	warm   = "default/warm"   // a group that nodes are members of

	// refused is the status with which a subnet manager refuses requests.
	refused = 0x0200
)

// infiniBand joins a pod whose interface is an IPoIB child: what it is told and
// what the subnet manager has must be the same.
func (d *demo) infiniBand(ctx context.Context) error {
	if err := d.apply(ctx, "trades"); err != nil {
		return err
	}
	told, err := d.tradesJoined(ctx, 0)
	if err != nil {
		return err
	}
	d.say("API: receiver-4 is told MGID %s, MLID %#x, P_Key %#x at index %d", told.MGID, told.MLID, told.PKey, *told.PKeyIndex)
	d.say("fabric: the subnet manager has node-4 as its one member, with the same MLID")
	return d.groupReady(ctx, trades, "1/1", v1alpha1.ReasonAllJoined)
}

// tradesJoined waits until receiver-4 was told that it has joined, later than
// with an epoch, and the subnet manager has it as a member by what it was told.
func (d *demo) tradesJoined(ctx context.Context, after int64) (told v1alpha1.MembershipStatus, err error) {
	err = d.eventually(ctx, "receiver-4 has joined", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		pod := v.pods["default/receiver-4"]
		if err := joined(&pod); err != nil {
			return err
		}
		statuses, err := groupStatus(&pod)
		if err != nil || len(statuses) != 1 {
			return fmt.Errorf("it was told of %d memberships: %w", len(statuses), err)
		}
		told = statuses[0]
		if told.Epoch <= after {
			return fmt.Errorf("its epoch is %d, want more than %d", told.Epoch, after)
		}
		if told.PKey != localcluster.PodPKey || told.PKeyIndex == nil || *told.PKeyIndex != 1 {
			return fmt.Errorf("it was told P_Key %#x, its pods' partition is %#x at index 1", told.PKey, localcluster.PodPKey)
		}
		return v.agree()
	})
	return told, err
}

// failover puts another subnet manager in charge, which knows no member and
// refuses them for a while. Nobody but the agent joins anew.
func (d *demo) failover(ctx context.Context) error {
	before, err := d.tradesJoined(ctx, 0)
	if err != nil {
		return err
	}
	mgid, err := netip.ParseAddr(before.MGID)
	if err != nil {
		return err
	}
	willing := d.cluster.Subnet.Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, MGID: mgid, Status: refused})
	defer willing()
	d.cluster.Subnet.FailOver(true)
	d.say("fabric: another subnet manager is in charge. It knows no member, and refuses to have any yet")
	err = d.eventually(ctx, "the pod and the group are told that the membership is lost", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if group, there := v.subnet[mgid]; there {
			return fmt.Errorf("%w: the subnet manager has the group, members %+v", errNever, group.Members)
		}
		pod := v.pods["default/receiver-4"]
		lost := joined(&pod)
		if lost == nil {
			return fmt.Errorf("the pod was told that it has joined")
		}
		_, reason, message, summary := ready(v.groups[trades])
		if reason != v1alpha1.ReasonSomeFailing || !strings.Contains(message, "node-4") {
			return fmt.Errorf("the group shows %s, reason %s: %s", summary, reason, message)
		}
		d.say("API: receiver-4: %v", lost)
		d.say("API: %s shows %s, reason %s: %s", trades, summary, reason, message)
		return nil
	})
	if err != nil {
		return err
	}
	willing()
	d.say("fabric: the subnet manager takes members from now on")
	after, err := d.tradesJoined(ctx, before.Epoch)
	if err != nil {
		return err
	}
	d.say("API: receiver-4 has joined again, epoch %d instead of %d, MLID %#x", after.Epoch, before.Epoch, after.MLID)
	d.say("fabric: the subnet manager has node-4 as a member again")
	return d.groupReady(ctx, trades, "1/1", v1alpha1.ReasonAllJoined)
}

// refusedNode has a group that one of two nodes can't be a member of: a verbatim
// MGID on RoCE.
func (d *demo) refusedNode(ctx context.Context) error {
	if err := d.kubectl(ctx, "label", "node", "node-3", "node-4", "warm=yes"); err != nil {
		return err
	}
	if err := d.apply(ctx, "warm"); err != nil {
		return err
	}
	err := d.eventually(ctx, "node-4 is a member, node-3 says why it isn't", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		status, reason, message, summary := ready(v.groups[warm])
		if summary != "1/2" || reason != v1alpha1.ReasonSomeFailing || !strings.Contains(message, "node-3") || strings.Contains(message, "node-4") {
			return fmt.Errorf("the group shows %s, Ready=%s, reason %s: %s", summary, status, reason, message)
		}
		if err := v.warmOnlyOn("node-4"); err != nil {
			return err
		}
		return v.agree()
	})
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "mcg", "warm"); err != nil {
		return err
	}
	v, err := d.look(ctx)
	if err != nil {
		return err
	}
	_, _, message, _ := ready(v.groups[warm])
	d.say("API: %s", message)
	d.say("fabric: node-4's own interface %s is a member of %s, node-3 of nothing of it", localcluster.IPoIBInterface, v.address(warm))
	if err := d.kubectl(ctx, "label", "node", "node-3", "warm-"); err != nil {
		return err
	}
	if err := d.groupReady(ctx, warm, "1/1", v1alpha1.ReasonAllJoined); err != nil {
		return err
	}
	mgid := v.address(warm)
	if err := d.kubectl(ctx, "delete", "mcg", "warm"); err != nil {
		return err
	}
	return d.eventually(ctx, "the group is gone, and the node isn't a member", func(ctx context.Context) error {
		v, err := d.look(ctx)
		if err != nil {
			return err
		}
		if _, there := v.groups[warm]; there {
			return fmt.Errorf("the group is there")
		}
		if group, there := v.subnet[mgid]; there {
			return fmt.Errorf("%w: the group is gone and the subnet manager has its members %+v", errNever, group.Members)
		}
		return v.agree()
	})
}

// warmOnlyOn: exactly this node's own interface is a member of warm.
func (v *view) warmOnlyOn(node string) error {
	held := v.members(v.address(warm))
	if len(held) != 1 || held[0].node.Name != node || held[0].NetNS != "" {
		return fmt.Errorf("members in the fabric: %s", places(held))
	}
	return nil
}
