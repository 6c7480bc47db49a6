package agent_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/agent"
)

func selfTesting(o *agent.Options) { o.SelfTestGroup = netip.MustParseAddr("239.255.77.76") }

// wantNodeCondition waits for a condition of the node's object.
func (w *world) wantNodeCondition(kind string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s is %s %s", kind, status, reason), func() error {
		node, err := w.multicastNode()
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(node.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// A port that can't is shown in the node's object, and refuses pods and the node
// itself with that reason; the others work.
func TestPortThatCannot(t *testing.T) {
	w := newWorld(t)
	w.machine.AddPlainInterface("", "eth2", netip.MustParsePrefix("198.51.100.1/24"))
	w.machine.AddRoCEv1Device("old0", "eth2")
	w.start(selfTesting)
	w.wantNodeCondition(v1alpha1.ConditionSelfTested, metav1.ConditionFalse, v1alpha1.ReasonSelfTestFailed)
	w.eventually("the port's problem is shown", func() error {
		node, err := w.multicastNode()
		if err != nil {
			return err
		}
		for _, d := range node.Status.Devices {
			if (d.Problem != nil) != (d.Name == "old0") || (d.Problem != nil && d.Problem.Reason != v1alpha1.ReasonRoCEv1) {
				return fmt.Errorf("%s has problem %+v", d.Name, d.Problem)
			}
		}
		if len(node.Status.Devices) != 2 {
			return errors.New("two devices are missing")
		}
		return nil
	})
	w.group("warm", "239.4.0.1", warm(nil))
	w.wantEntries("warm 1/2")
	p := w.pod("app", "warm@eth2", hostNetwork)
	p.wantCondition(corev1.ConditionFalse, v1alpha1.ReasonRoCEv1, "interface eth2 can't be used")
	_, statuses, err := p.get()
	if err != nil || len(statuses) != 1 || statuses[0].State != v1alpha1.StateRefused || statuses[0].Reason != v1alpha1.ReasonRoCEv1 {
		t.Errorf("group-status is %+v, %v", statuses, err)
	}
}

// The self-test leaves nothing behind and is told.
func TestSelfTestIsTold(t *testing.T) {
	w := newWorld(t)
	w.start(selfTesting)
	w.wantNodeCondition(v1alpha1.ConditionSelfTested, metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed)
	w.wantNoMembers()
}

// Limits are told when they are reached, by the pod's condition and an event.
func TestLimitsAreTold(t *testing.T) {
	w := newWorld(t)
	w.start(func(o *agent.Options) { o.MaxMembershipsPerPod, o.MaxMembershipsPerNode = 2, 3 })
	for i := range 3 {
		w.group(fmt.Sprintf("g%d", i), fmt.Sprintf("239.4.1.%d", i+1))
	}
	p := w.pod("greedy", "g0,g1,g2")
	p.wantCondition(corev1.ConditionFalse, v1alpha1.ReasonPodLimitReached, "g2", "--max-memberships-per-pod")
	p.wantEvents(v1alpha1.ReasonPodLimitReached, 1)
	q := w.pod("late", "g0,g1")
	q.wantCondition(corev1.ConditionFalse, v1alpha1.ReasonNodeLimitReached, "g1", "--max-memberships-per-node")
	q.wantEvents(v1alpha1.ReasonNodeLimitReached, 1)
}

// A carrier that was lost and came back is seen, and the groups reported anew:
// the switch has forgotten them, and nobody else tells it.
func TestCarrierIsBack(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.group("group", "239.4.0.2")
	p := w.pod("app", "group")
	p.wantJoined("239.4.0.2")
	epoch := p.epoch()
	state := func(want string) {
		t.Helper()
		w.eventually("the port is "+want, func() error {
			node, err := w.multicastNode()
			if err != nil {
				return err
			}
			if len(node.Status.Devices) != 1 || node.Status.Devices[0].State != want {
				return fmt.Errorf("devices are %+v", node.Status.Devices)
			}
			return nil
		})
	}
	state("Active")
	w.machine.SetPortLink("rxe0", false)
	state("Down")
	w.machine.SetPortLink("rxe0", true)
	state("Active")
	w.eventually("the group was joined anew", func() error {
		if again := p.epoch(); again <= epoch {
			return fmt.Errorf("epoch %d, then %d", epoch, again)
		}
		return nil
	})
	if ports := w.fabric.MDB()[netip.MustParseAddr("239.4.0.2")]; len(ports) != 1 {
		t.Errorf("the switch has %v", w.fabric.MDB())
	}
}
