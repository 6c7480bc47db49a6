package agent_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// infiniBand puts a port on a subnet beside the world's NIC.
func (w *world) infiniBand() *rdmatest.Subnet {
	subnet := w.fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
	w.machine.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("198.51.100.1/24"))
	return subnet
}

func onInfiniBand(g *v1alpha1.MulticastGroup) {
	g.Spec.InterfaceSelector = &v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand}}
}

// status waits until the pod's only membership is as wanted, and returns it.
func (p *testPod) status(what string, wanted func(v1alpha1.MembershipStatus) bool) (got v1alpha1.MembershipStatus) {
	p.w.t.Helper()
	p.w.eventually(what, func() error {
		_, statuses, err := p.get()
		if err != nil || len(statuses) != 1 || !wanted(statuses[0]) {
			return fmt.Errorf("group-status is %+v, %w", statuses, err)
		}
		got = statuses[0]
		return nil
	})
	return got
}

func isJoined(s v1alpha1.MembershipStatus) bool { return s.State == v1alpha1.StateJoined }

// A verbatim MGID is joined on InfiniBand, and joined anew after a failover of
// the subnet manager: the pod sees it by the epoch.
func TestVerbatimMGIDSurvivesAFailover(t *testing.T) {
	w := newWorld(t)
	subnet := w.infiniBand()
	w.start(selfTesting)
	mgid := netip.MustParseAddr("ff15:a01b:fe80::7")
	g := w.group("mgid", "", onInfiniBand, func(g *v1alpha1.MulticastGroup) { g.Spec.MGID = mgid.String() })
	p := w.pod("app", "mgid", hostNetwork)
	before := p.status("it is joined", isJoined)
	if before.MGID != mgid.String() || before.MLID < 0xc000 || before.PKey != 0xffff || before.PKeyIndex == nil || before.GIDType != "" || before.Interface != "ib0" {
		t.Errorf("the pod is told %+v", before)
	}
	subnet.FailOver(true)
	p.status("it is joined anew", func(s v1alpha1.MembershipStatus) bool { return isJoined(s) && s.Epoch > before.Epoch })
	if len(subnet.MDB()[mgid].Members) != 1 {
		t.Errorf("the subnet manager has %+v", subnet.MDB())
	}
	w.delete(g)
	w.eventually("the subnet manager has forgotten it", func() error {
		if members := subnet.MDB()[mgid].Members; len(members) != 0 {
			return fmt.Errorf("it has %+v", members)
		}
		return nil
	})
}

// Without a way to the subnet manager a membership waits, and what the subnet
// manager refuses fails, each told in its word.
func TestSubnetManagerIsAwayOrRefuses(t *testing.T) {
	w := newWorld(t)
	subnet := w.infiniBand()
	w.start()
	w.group("waits", "239.5.0.1", onInfiniBand)
	restore := w.machine.CutSM("mlx5_0")
	p := w.pod("app", "waits", hostNetwork)
	p.wantCondition(corev1.ConditionFalse, v1alpha1.ReasonWaiting, "waits on ib0")
	restore()
	p.wantCondition(corev1.ConditionTrue, v1alpha1.ReasonAllJoined)

	w.machine.AddHCA(subnet, "mlx5_1", "ib1", netip.MustParsePrefix("203.0.113.1/24"))
	w.machine.SetPortSpeed("mlx5_1", 2048, 10)
	q := w.pod("slow", "waits@ib1", hostNetwork)
	q.wantCondition(corev1.ConditionFalse, v1alpha1.ReasonJoinFailed, "invalid argument")
	w.eventually("the node's entry tells so", func() error {
		e, err := w.entry("waits")
		if err != nil || e.Failing == 0 {
			return fmt.Errorf("it is %+v, %w", e, err)
		}
		return nil
	})
}
