//go:build realkernel

package e2e

import (
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const rackLabel = "e2e.rdma-multicast.dev/rack"

// label gives the node a label, or with nil takes it away.
func (c *cluster) label(t *testing.T, value any) {
	t.Helper()
	c.patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		map[string]any{"metadata": map[string]any{"labels": map[string]any{rackLabel: value}}})
}

// nodeMembers has the node itself be a member: with a label, and whatever the
// pods do.
func nodeMembers(t *testing.T, c *cluster) {
	warm := group(41)
	c.create(t, &v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "warm"},
		Spec: v1alpha1.MulticastGroupSpec{
			Address:           warm.String(),
			InterfaceSelector: &v1alpha1.InterfaceSelector{Interfaces: []string{podNIC}},
			Nodes:             &v1alpha1.NodeMembers{NodeSelector: map[string]v1alpha1.LabelValue{rackLabel: "a"}},
		},
	})
	c.label(t, "b")
	t.Cleanup(func() { c.label(t, nil) })
	c.groupShows(t, "warm", "0/0", "False", v1alpha1.ReasonNoMembers)
	if err := memberOnce(0, podNIC); err != nil {
		t.Error(err)
	}
	c.entries(t, 0)

	c.label(t, "a")
	c.eventually(t, "the node to be a member", func() error { return memberOnce(0, podNIC, warm) })
	if err := memberOnce(0, senderNIC); err != nil {
		t.Errorf("on the interface that isn't selected: %v", err)
	}
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(warm) })
	c.entry(t, "warm", 1)
	c.groupShows(t, "warm", "1/1", "True", v1alpha1.ReasonAllJoined)

	// A pod that asks for the same shares the node's membership.
	changes := c.switchLogFromNow(t)
	pod := newReceiver("guest", "warm@"+podNIC, warm)
	c.create(t, pod)
	with := c.areJoined(t, "guest", "warm@"+podNIC)
	toldGID(t, with["warm@"+podNIC], podDevice, podNICAddress)
	if err := memberOnce(0, podNIC, warm); err != nil {
		t.Error(err)
	}
	c.entry(t, "warm", 2)
	c.expect(t, warm, packets, c.receiverOf(t, "guest"))
	c.deletePod(t, "guest")
	c.eventually(t, "the pod to be gone", func() error { return c.gone(pod) })
	c.entry(t, "warm", 1)
	if err := memberOnce(0, podNIC, warm); err != nil {
		t.Errorf("the pod has gone, the node stays: %v", err)
	}
	if deleted, err := changes.deletions(warm); err != nil || len(deleted) > 0 {
		t.Errorf("the switch saw a leave while the node was a member: %q, %v", deleted, err)
	}

	c.label(t, nil)
	c.eventually(t, "the node to leave", func() error { return memberOnce(0, podNIC) })
	c.leftOnSwitch(t, warm)
	c.entries(t, 0)
	c.groupShows(t, "warm", "0/0", "False", v1alpha1.ReasonNoMembers)
}
