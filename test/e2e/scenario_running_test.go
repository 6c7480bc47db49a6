//go:build realkernel

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runningPod plays what comes about while a pod runs, on one pod: each part
// leaves it without any membership.
func runningPod(t *testing.T, c *cluster) {
	c.create(t, newPod("runs", ""))
	pid := c.podProcess(t, "runs")
	for _, part := range []struct {
		name string
		play func(*testing.T, *cluster, int)
	}{
		{"annotation edited", annotationEdited},
		{"two RDMA interfaces", twoRDMAInterfaces},
		{"second address", secondAddress},
		{"RDMA device deleted and added", rdmaDeviceDeletedAndAdded},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Cleanup(func() { c.asksForNothing(t, pid) })
			part.play(t, c, pid)
		})
	}
	if now := c.podProcess(t, "runs"); now != pid {
		t.Errorf("the pod's process was replaced: %d, before %d", now, pid)
	}
}

// asksForNothing takes the running pod's annotation away, and all groups, and
// holds that nothing remains of any membership while the pod goes on.
func (c *cluster) asksForNothing(t *testing.T, pid int) {
	t.Helper()
	c.ask(t, "runs", "")
	c.eventually(t, "the pod to be a member of nothing", func() error { return memberOnce(pid, podInterface) })
	c.deleteGroups(t)
	c.isTold(t, "runs", nil)
	c.idleAgain(t)
}

func annotationEdited(t *testing.T, c *cluster, pid int) {
	leaves, stays, comes := group(30), group(31), group(32)
	c.newGroup(t, namespace, "leaves", leaves.String())
	c.newGroup(t, namespace, "stays", stays.String())
	c.newGroup(t, namespace, "comes", comes.String())
	c.ask(t, "runs", "leaves, stays")
	before := c.areJoined(t, "runs", "leaves@eth0", "stays@eth0")
	if err := memberOnce(pid, podInterface, leaves, stays); err != nil {
		t.Error(err)
	}
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(leaves) })
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(stays) })

	changes := c.switchLogFromNow(t)
	c.ask(t, "runs", "stays, comes")
	after := c.areJoined(t, "runs", "stays@eth0", "comes@eth0")
	untouched(t, before, after, "stays@eth0")
	if err := memberOnce(pid, podInterface, stays, comes); err != nil {
		t.Error(err)
	}
	c.leftOnSwitch(t, leaves)
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(comes) })
	c.groupShows(t, "leaves", "0/0", "True", v1alpha1.ReasonNoMembers)
	c.groupShows(t, "comes", "1/1", "True", v1alpha1.ReasonAllJoined)
	c.entries(t, 2)

	// What can't be understood is told, and costs nothing that can.
	c.ask(t, "runs", "stays, Not A Name, comes")
	a := c.conditionIs(t, "runs", "False")
	if !strings.Contains(a.condition.Message, "Not A Name") {
		t.Errorf("the pod isn't told what can't be understood: %q", a.condition.Message)
	}
	untouched(t, after, c.areJoined(t, "runs", "stays@eth0", "comes@eth0"), "stays@eth0", "comes@eth0")
	if deleted, err := changes.deletions(stays); err != nil || len(deleted) > 0 {
		t.Errorf("the switch saw a leave of the group that stayed asked for: %q, %v", deleted, err)
	}

	c.ask(t, "runs", "")
	c.isTold(t, "runs", nil)
	if err := memberOnce(pid, podInterface); err != nil {
		t.Error(err)
	}
	c.leftOnSwitch(t, stays)
	c.leftOnSwitch(t, comes)
}

func twoRDMAInterfaces(t *testing.T, c *cluster, pid int) {
	const second, address = "net1", "10.0.7.5"
	both, chosen := group(33), group(34)
	c.newGroup(t, namespace, "both", both.String())
	c.newGroup(t, namespace, "chosen", chosen.String())
	c.ask(t, "runs", "both, chosen@"+second)
	one := c.isTold(t, "runs", map[string]v1alpha1.MembershipState{
		"both@eth0": v1alpha1.StateJoined, "chosen@net1": v1alpha1.StateRefused,
	})

	// On the other NIC, as a CNI plugin would bring it that is called late.
	run(t, "ip", "link", "add", "link", senderNIC, "name", second, "netns", fmt.Sprint(pid), "type", "macvlan", "mode", "bridge")
	t.Cleanup(func() { inPod(t, pid, "ip", "link", "delete", second) })
	inPod(t, pid, "ip", "address", "add", address+"/24", "dev", second)
	inPod(t, pid, "ip", "link", "set", second, "up")
	all := c.areJoined(t, "runs", "both@eth0", "both@net1", "chosen@net1")
	untouched(t, one, all, "both@eth0")
	toldGID(t, all["both@eth0"], podDevice, c.podIP(t, "runs"))
	toldGID(t, all["both@net1"], senderDevice, address)
	toldGID(t, all["chosen@net1"], senderDevice, address)
	if err := memberOnce(pid, podInterface, both); err != nil {
		t.Error(err)
	}
	if err := memberOnce(pid, second, both, chosen); err != nil {
		t.Error(err)
	}
	c.eventually(t, "the switch to deliver", func() error { return onSwitchPorts(both, senderPort, podPort) })
	c.eventually(t, "the switch to deliver", func() error { return onSwitchPorts(chosen, senderPort) })
	c.entry(t, "both", 2)

	// The one that was on both is chosen, the chosen one isn't any more.
	c.ask(t, "runs", "both@"+podInterface+", chosen")
	turned := c.areJoined(t, "runs", "both@eth0", "chosen@eth0", "chosen@net1")
	untouched(t, all, turned, "both@eth0", "chosen@net1")
	toldGID(t, turned["chosen@eth0"], podDevice, c.podIP(t, "runs"))
	c.eventually(t, "the switch to see the leave on one port alone", func() error { return onSwitchPorts(both, podPort) })
	c.eventually(t, "the switch to deliver", func() error { return onSwitchPorts(chosen, senderPort, podPort) })
	for iface, err := range map[string]error{
		podInterface: memberOnce(pid, podInterface, both, chosen),
		second:       memberOnce(pid, second, chosen),
	} {
		if err != nil {
			t.Errorf("%s: %v", iface, err)
		}
	}

	// Left before the interface goes: the switch is told.
	c.ask(t, "runs", "")
	c.isTold(t, "runs", nil)
	c.leftOnSwitch(t, both)
	c.leftOnSwitch(t, chosen)
}

// podIP waits until kubelet has told a pod's address.
func (c *cluster) podIP(t *testing.T, pod string) string {
	t.Helper()
	return c.podAddress(t, pod).Unmap().String()
}

func secondAddress(t *testing.T, c *cluster, pid int) {
	const address, subnet = "10.0.8.5", "10.0.8.0/24"
	old, seen, late := group(35), group(36), group(37)
	first := c.podIP(t, "runs")
	c.newGroup(t, namespace, "old", old.String())
	// Joined as soon as the agent has seen the second address, not before.
	c.create(t, &v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "seen"},
		Spec: v1alpha1.MulticastGroupSpec{
			Address:           seen.String(),
			InterfaceSelector: &v1alpha1.InterfaceSelector{Subnets: []string{subnet}},
		},
	})
	c.ask(t, "runs", "old, seen")
	before := c.isTold(t, "runs", map[string]v1alpha1.MembershipState{
		"old@eth0": v1alpha1.StateJoined, "seen@": v1alpha1.StateRefused,
	})

	changes := c.switchLogFromNow(t)
	inPod(t, pid, "ip", "address", "add", address+"/24", "dev", podInterface)
	two := c.areJoined(t, "runs", "old@eth0", "seen@eth0")
	untouched(t, before, two, "old@eth0")
	// The address was there before the group.
	c.newGroup(t, namespace, "late", late.String())
	c.ask(t, "runs", "old, seen, late")
	three := c.areJoined(t, "runs", "old@eth0", "seen@eth0", "late@eth0")
	untouched(t, two, three, "old@eth0", "seen@eth0")
	for _, status := range three {
		toldGID(t, status, podDevice, first)
	}
	if err := memberOnce(pid, podInterface, old, seen, late); err != nil {
		t.Error(err)
	}
	c.entry(t, "old", 1)

	// Taken away again, it takes only the group along that it was needed for.
	inPod(t, pid, "ip", "address", "delete", address+"/24", "dev", podInterface)
	after := c.isTold(t, "runs", map[string]v1alpha1.MembershipState{
		"old@eth0": v1alpha1.StateJoined, "seen@": v1alpha1.StateRefused, "late@eth0": v1alpha1.StateJoined,
	})
	untouched(t, three, after, "old@eth0", "late@eth0")
	if err := memberOnce(pid, podInterface, old, late); err != nil {
		t.Error(err)
	}
	c.leftOnSwitch(t, seen)
	for _, group := range []netip.Addr{old, late} {
		if deleted, err := changes.deletions(group); err != nil || len(deleted) > 0 {
			t.Errorf("the switch saw a leave of %s: %q, %v", group, deleted, err)
		}
	}
}

func rdmaDeviceDeletedAndAdded(t *testing.T, c *cluster, pid int) {
	groups := map[string]byte{"one": 38, "two": 39, "three": 40}
	var memberships []string
	for name, n := range groups {
		c.newGroup(t, namespace, name, group(n).String())
		memberships = append(memberships, name+"@"+podInterface)
	}
	c.ask(t, "runs", "one, two, three")
	before := c.areJoined(t, "runs", memberships...)

	added := false
	run(t, "rdma", "link", "delete", podDevice)
	t.Cleanup(func() {
		if !added { // the other scenarios need it
			run(t, "rdma", "link", "add", podDevice, "type", "rxe", "netdev", podNIC)
		}
	})
	c.eventually(t, "the kernel to be a member of nothing", func() error { return memberOnce(pid, podInterface) })
	without := c.isTold(t, "runs", map[string]v1alpha1.MembershipState{
		"one@": v1alpha1.StateWaiting, "two@": v1alpha1.StateWaiting, "three@": v1alpha1.StateWaiting,
	})
	for _, status := range without {
		if !strings.Contains(status.Message, "no RDMA interface any more") {
			t.Errorf("without its device, the pod isn't told why: %+v", status)
		}
	}
	c.conditionIs(t, "runs", "False")
	for _, n := range groups {
		c.leftOnSwitch(t, group(n))
	}
	c.deviceShown(t, podDevice, false)
	c.groupShows(t, "one", "0/1", "False", v1alpha1.ReasonJoining)

	added = true
	run(t, "rdma", "link", "add", podDevice, "type", "rxe", "netdev", podNIC)
	after := c.areJoined(t, "runs", memberships...)
	rejoined(t, before, after, memberships...)
	for name, n := range groups {
		toldGID(t, after[name+"@"+podInterface], podDevice, c.podIP(t, "runs"))
		c.eventually(t, "the switch to deliver", func() error { return onSwitch(group(n)) })
	}
	if err := memberOnce(pid, podInterface, group(38), group(39), group(40)); err != nil {
		t.Error(err)
	}
	c.deviceShown(t, podDevice, true)
	c.groupShows(t, "one", "1/1", "True", v1alpha1.ReasonAllJoined)
}

// deviceShown waits until the node object shows a device, or doesn't.
func (c *cluster) deviceShown(t *testing.T, device string, want bool) {
	t.Helper()
	c.eventually(t, fmt.Sprintf("device %s to be shown: %v", device, want), func() error {
		node, err := c.nodeObject()
		if err != nil {
			return err
		}
		shown := false
		for _, d := range node.Status.Devices {
			shown = shown || d.Name == device
		}
		if shown != want {
			return fmt.Errorf("devices %+v", node.Status.Devices)
		}
		return nil
	})
}
