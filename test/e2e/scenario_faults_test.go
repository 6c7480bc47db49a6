//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func apiServerAway(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(11).String())
	c.newGroup(t, namespace, "orders", group(12).String())
	ends := newPod("ends", "orders")
	ends.Spec.RestartPolicy = corev1.RestartPolicyNever
	c.create(t, ends)
	c.create(t, newPod("stays", "market-data"))
	c.isJoinedEverywhere(t, "ends", "orders", group(12))
	c.isJoinedEverywhere(t, "stays", "market-data", group(11))
	ending, staying := c.podProcess(t, "ends"), c.podProcess(t, "stays")
	before := c.joined(t, "stays")

	changes := c.switchLogFromNow(t)
	// Asked to end, it would first wait for its clients.
	c.kill(t, c.apiServer)
	if err := syscall.Kill(ending, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.leftOnSwitch(t, group(12))
	if err := isMember(staying, podInterface, group(11)); err != nil {
		t.Errorf("the pod that goes on: %v", err)
	}

	c.startAPIServer(t)
	c.waitForAPIServer(t)
	c.groupShows(t, "orders", "0/0", "True", v1alpha1.ReasonNoMembers)
	c.groupShows(t, "market-data", "1/1", "True", v1alpha1.ReasonAllJoined)
	c.entries(t, 1)
	if err := isMember(staying, podInterface, group(11)); err != nil {
		t.Errorf("the pod that goes on: %v", err)
	}
	if after := c.joined(t, "stays"); after.groups[0].Epoch != before.groups[0].Epoch {
		t.Errorf("epoch %d, before %d: it was joined again", after.groups[0].Epoch, before.groups[0].Epoch)
	}
	if deleted, err := changes.deletions(group(11)); err != nil || len(deleted) > 0 {
		t.Errorf("the switch saw a leave of the pod that goes on: %q, %v", deleted, err)
	}
}

func refusedAtApply(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(13).String())
	bad := map[string]struct{ address, says string }{
		"unicast":     {"10.0.0.1", "must be a multicast address: allowed are 224.0.1.0"},
		"link-local":  {"224.0.0.5", "must not be link-local"},
		"link-local6": {"ff02::1:2", "must not be reserved, interface-local or link-local"},
		"upper-case":  {"FF0E::1234", "in its canonical form"},
		"zeros":       {"239.001.1.1", "in its canonical form"},
		"name":        {"market-data", "must be an IPv4 or IPv6 multicast address"},
		// It is there, with another address.
		"market-data": {group(14).String(), "can't be changed: delete the group"},
	}
	var file strings.Builder
	for name, group := range bad {
		file.WriteString("---\n" + groupYAML(name, group.address))
	}
	_, err := c.kubectlApply(t, file.String())
	if err == nil {
		t.Fatal("all of it was applied")
	}
	for name, group := range bad {
		refused := slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(line string) bool {
			return strings.Contains(line, `"`+name+`" is invalid`) && strings.Contains(line, group.says)
		})
		if !refused {
			t.Errorf("group %s with address %s isn't refused with %q: %v", name, group.address, group.says, err)
		}
	}
	var groups v1alpha1.MulticastGroupList
	if err := c.client.List(context.Background(), &groups, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(groups.Items) != 1 || groups.Items[0].Spec.Address != group(13).String() {
		t.Errorf("groups: %+v, want the one that was there", groups.Items)
	}
}

func badRequests(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(15).String())
	c.newGroup(t, namespace, "six", group(16).String())
	c.newGroup(t, namespace, "v6", "ff0e::1234")
	c.newGroup(t, otherNamespace, "theirs", group(17).String())

	// Everything at once, and one request that is right.
	c.create(t, newPod("mixed", strings.Join([]string{
		"market-data", "unknown", otherNamespace + "/theirs", "six@nowhere", "six@lo", "v6",
	}, ",")))
	c.create(t, newPod("fine", "market-data"))
	c.isJoinedBesides(t, "mixed", "market-data")
	pid := c.podProcess(t, "mixed")
	if err := isMember(pid, podInterface, group(15)); err != nil {
		t.Error(err)
	}
	for _, n := range []byte{16, 17} {
		if err := isNoMember(pid, podInterface, group(n)); err != nil {
			t.Error(err)
		}
	}
	c.joined(t, "fine")

	// Everyone of them is told, with why: the condition sums up.
	a := c.conditionIs(t, "mixed", corev1.ConditionFalse)
	for group, says := range map[string]string{
		namespace + "/unknown":            "there is no MulticastGroup",
		otherNamespace + "/theirs":        "allowedNamespaces",
		namespace + "/six@nowhere":        "there is no interface nowhere",
		namespace + "/six@lo":             "isn't an RDMA interface",
		namespace + "/v6@" + podInterface: "524",
	} {
		name, iface, _ := strings.Cut(group, "@")
		found := false
		for _, status := range a.groups {
			if status.Group == name && (iface == "" || status.Interface == iface) {
				found = true
				if status.State == v1alpha1.StateJoined || !strings.Contains(status.Message, says) {
					t.Errorf("%s: told as %+v, want the reason %q", group, status, says)
				}
			}
		}
		if !found {
			t.Errorf("%s isn't told; group-status: %+v", group, a.groups)
		}
		c.podEvent(t, "mixed", name, says)
	}
}

// isJoinedBesides waits until one of a pod's groups is told as joined, whatever
// the others are.
func (c *cluster) isJoinedBesides(t *testing.T, pod, name string) {
	t.Helper()
	c.eventually(t, fmt.Sprintf("pod %s to be a member of %s", pod, name), func() error {
		a, err := c.answer(pod)
		if err != nil {
			return err
		}
		for _, status := range a.groups {
			if status.Group == namespace+"/"+name && status.State == v1alpha1.StateJoined {
				return nil
			}
		}
		return fmt.Errorf("condition %+v, group-status %+v", a.condition, a.groups)
	})
}

func noRDMAUCM(t *testing.T, c *cluster) {
	c.stop(t, c.agent)
	run(t, "modprobe", "-r", "rdma_ucm")
	t.Cleanup(func() { run(t, "modprobe", "rdma_ucm") })
	c.startAgent(t, nriSocket)
	message := c.rdmaReady(t, "False", v1alpha1.ReasonModuleNotLoaded)
	if !strings.Contains(message, "rdma_ucm") {
		t.Errorf("the node object doesn't say which module: %q", message)
	}
	c.newGroup(t, namespace, "market-data", group(18).String())
	c.create(t, newPod("waits", "market-data"))
	c.podProcess(t, "waits")
	a := c.conditionIs(t, "waits", corev1.ConditionFalse)
	if !strings.Contains(a.condition.Message, "rdma_ucm") {
		t.Errorf("the pod isn't told which module: %q", a.condition.Message)
	}

	run(t, "modprobe", "rdma_ucm")
	c.rdmaReady(t, "True", v1alpha1.ReasonRDMAAvailable)
	c.isJoinedEverywhere(t, "waits", "market-data", group(18))
}

// restartAgent replaces the agent, whose memberships its end gives up.
func (c *cluster) restartAgent(t *testing.T, nri string) {
	t.Helper()
	c.stop(t, c.agent)
	c.startAgent(t, nri)
	c.eventually(t, "the new agent", func() error {
		var node v1alpha1.MulticastNode
		return c.client.Get(context.Background(), metaKey("", nodeName), &node)
	})
	c.settle(t)
}
