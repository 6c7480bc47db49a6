//go:build realkernel

package e2e

import (
	"net/netip"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// A group of its own for each scenario, so that nothing of an earlier one is
// taken for its own. The last three bytes differ: each has its own Ethernet
// address.
func group(n byte) netip.Addr { return netip.AddrFrom4([4]byte{239, 1, 1, n}) }

func groupThenPod(t *testing.T, c *cluster) {
	if _, err := c.kubectlApply(t, groupYAML("market-data", group(1).String())); err != nil {
		t.Fatal(err)
	}
	c.groupShows(t, "market-data", "0/0", "True", v1alpha1.ReasonNoMembers)
	c.create(t, newPod("first", "market-data"))
	c.isJoinedEverywhere(t, "first", "market-data", group(1))
	c.kubectlShows(t, "market-data", "ADDRESS", "NODES", "READY", "REASON",
		group(1).String(), "1/1", "True", v1alpha1.ReasonAllJoined)
}

func podThenGroup(t *testing.T, c *cluster) {
	c.create(t, newPod("early", "market-data"))
	pid := c.podProcess(t, "early")
	c.conditionIs(t, "early", "False")
	if err := isNoMember(pid, podInterface, group(2)); err != nil {
		t.Error(err)
	}
	c.newGroup(t, namespace, "market-data", group(2).String())
	c.isJoinedEverywhere(t, "early", "market-data", group(2))
}

// isJoinedEverywhere holds that a pod is a member of one group: in the kernel,
// on the switch, in what the pod is told and in what the group's users see.
func (c *cluster) isJoinedEverywhere(t *testing.T, pod, name string, address netip.Addr) {
	t.Helper()
	pid := c.podProcess(t, pod)
	a := c.joined(t, pod)
	if err := isMember(pid, podInterface, address); err != nil {
		t.Error(err)
	}
	if err := isNoMember(0, podNIC, address); err != nil {
		t.Errorf("in the node's namespace: %v", err)
	}
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(address) })

	if len(a.groups) != 1 {
		t.Fatalf("group-status has %d elements, want 1: %+v", len(a.groups), a.groups)
	}
	got := a.groups[0]
	if got.GIDIndex == nil {
		t.Fatalf("group-status tells no gidIndex: %+v", got)
	}
	podAddress := c.podAddress(t, pod)
	if g := gid(t, podDevice, *got.GIDIndex); g != podAddress {
		t.Errorf("gidIndex %d is GID %s, want that of the pod's address %s", *got.GIDIndex, g, podAddress)
	}
	want := v1alpha1.MembershipStatus{
		Group:     namespace + "/" + name,
		State:     v1alpha1.StateJoined,
		Interface: podInterface,
		Device:    podDevice,
		Port:      1,
		MGID:      "::ffff:" + address.String(),
		QKey:      0x01234567,
		GID:       podAddress.String(),
		GIDIndex:  got.GIDIndex,
		GIDType:   "RoCE v2",
		PKey:      0xffff,
		PKeyIndex: new(int32), // the first
		Mode:      v1alpha1.FullMember,
		Epoch:     got.Epoch,
	}
	if diff := diffStatus(want, got); diff != "" {
		t.Errorf("group-status (-want +got):\n%s", diff)
	}
	if got.Epoch < 1 {
		t.Errorf("epoch %d of a membership that was joined", got.Epoch)
	}
	c.groupShows(t, name, address.String(), "1/1", "True", v1alpha1.ReasonAllJoined)
}

// podAddress waits until kubelet has told a pod's address, and gives it as the
// GID that stands for it.
func (c *cluster) podAddress(t *testing.T, pod string) (gid netip.Addr) {
	t.Helper()
	c.eventually(t, "the address of pod "+pod, func() error {
		a, err := c.answer(pod)
		if err != nil {
			return err
		}
		address, err := netip.ParseAddr(a.pod.Status.PodIP)
		if err == nil {
			gid = netip.AddrFrom16(address.As16())
		}
		return err
	})
	return gid
}

func verbsOnlyReceiver(t *testing.T, c *cluster) {
	// On the interface that the receiver's device is on; mckey, on the other
	// one, must not be given packets by a membership of the pod.
	c.create(t, newReceiver("receiver", "market-data@"+podNIC, group(3)))
	c.conditionIs(t, "receiver", "False")
	r := c.receiverOf(t, "receiver")
	c.expect(t, group(3), 0, r)

	c.newGroup(t, namespace, "market-data", group(3).String())
	c.joined(t, "receiver")
	if err := isMember(0, podNIC, group(3)); err != nil {
		t.Error(err)
	}
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(group(3)) })
	c.expect(t, group(3), packets, r)

	c.deleteGroup(t, "market-data")
	c.leftOnSwitch(t, group(3))
	c.expect(t, group(3), 0, r)
}

func groupDeletedAndAppliedAgain(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(9).String())
	c.create(t, newPod("stays", "market-data"))
	c.isJoinedEverywhere(t, "stays", "market-data", group(9))
	pid := c.podProcess(t, "stays")
	first := c.joined(t, "stays").groups[0].Epoch

	c.deleteGroup(t, "market-data")
	// The object is gone: so is the membership.
	if err := isNoMember(pid, podInterface, group(9)); err != nil {
		t.Error(err)
	}
	c.leftOnSwitch(t, group(9))
	c.podEvent(t, "stays", namespace+"/market-data", "deleted")
	c.conditionIs(t, "stays", "False")

	c.newGroup(t, namespace, "market-data", group(9).String())
	c.isJoinedEverywhere(t, "stays", "market-data", group(9))
	if again := c.joined(t, "stays").groups[0].Epoch; again <= first {
		t.Errorf("epoch %d after joining again, %d before: applications wouldn't notice", again, first)
	}
	if now := c.podProcess(t, "stays"); now != pid {
		t.Errorf("the pod's process was replaced: %d, before %d", now, pid)
	}
}

func twoPodsOnTheNodesInterface(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(10).String())
	for _, name := range []string{"one", "two"} {
		c.create(t, newReceiver(name, "market-data@"+podNIC, group(10)))
	}
	c.joined(t, "one")
	c.joined(t, "two")
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(group(10)) })
	one, two := c.receiverOf(t, "one"), c.receiverOf(t, "two")
	c.expect(t, group(10), packets, one, two)

	changes := c.switchLogFromNow(t)
	pod := newPod("one", "")
	c.deletePod(t, "one")
	c.eventually(t, "pod one to be gone", func() error { return c.gone(pod) })
	if err := isMember(0, podNIC, group(10)); err != nil {
		t.Error(err)
	}
	c.expect(t, group(10), packets, two)
	if deleted, err := changes.deletions(group(10)); err != nil || len(deleted) > 0 {
		t.Errorf("the switch took the entry away while a pod was a member: %q, %v", deleted, err)
	}

	c.deletePod(t, "two")
	c.eventually(t, "the node to leave", func() error { return isNoMember(0, podNIC, group(10)) })
	c.leftOnSwitch(t, group(10))
}
