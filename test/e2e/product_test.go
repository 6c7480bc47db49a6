//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// productNamespace is where config/ puts the project's own objects.
const productNamespace = "rdma-multicast-system"

const nriSocket = "/run/nri/nri.sock"

// installProduct applies what an administrator applies, and starts the
// controller and the agent with the tokens of their ServiceAccounts.
func (c *cluster) installProduct(t *testing.T) {
	t.Helper()
	if _, err := c.kubectl("apply", "--server-side", "--validate=false", "-k", filepath.Join(c.settings.root, "config")); err != nil {
		t.Fatal(err)
	}
	c.startProcess(t, "controller", filepath.Join(c.settings.programs, "controller"),
		"--kubeconfig="+c.serviceAccountKubeconfig(t, productNamespace, "rdma-multicast-controller"),
		"--agent-namespace="+productNamespace,
		"--health-address=127.0.0.1:8081", "--metrics-address=0")
	c.serviceAccountKubeconfig(t, productNamespace, "rdma-multicast-agent")
	c.startAgent(t, nriSocket)
}

// startAgent starts the agent; an empty socket switches NRI off.
func (c *cluster) startAgent(t *testing.T, nri string) {
	t.Helper()
	c.agent = c.startProcess(t, "agent", filepath.Join(c.settings.programs, "agent"),
		"--kubeconfig="+c.path("kubeconfig-rdma-multicast-agent"),
		"--node-name="+nodeName,
		"--namespace="+productNamespace,
		"--cri-endpoint=unix://"+containerdSocket,
		"--nri-socket="+nri,
		// The default of 10 s spares a large cluster's API server.
		"--gather-interval=1s",
		"--health-address=127.0.0.1:8082", "--metrics-address=0")
}

// nodeObject is what the agent says of the node.
func (c *cluster) nodeObject() (*v1alpha1.MulticastNode, error) {
	var node v1alpha1.MulticastNode
	err := c.client.Get(context.Background(), client.ObjectKey{Name: nodeName}, &node)
	return &node, err
}

// rdmaReady waits until the node object's condition has a status and a reason.
func (c *cluster) rdmaReady(t *testing.T, status, reason string) string {
	t.Helper()
	var message string
	c.eventually(t, fmt.Sprintf("condition RDMAReady=%s %s of the MulticastNode", status, reason), func() error {
		node, err := c.nodeObject()
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == v1alpha1.ConditionRDMAReady && string(condition.Status) == status && condition.Reason == reason {
				message = condition.Message
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", node.Status.Conditions)
	})
	return message
}

// entries waits until the node's entries are as many as wanted.
func (c *cluster) entries(t *testing.T, want int) {
	t.Helper()
	c.eventually(t, fmt.Sprintf("%d entries in the MulticastNode", want), func() error {
		node, err := c.nodeObject()
		if err == nil && len(node.Status.Groups) != want {
			err = fmt.Errorf("entries %+v", node.Status.Groups)
		}
		return err
	})
}

// cleanUp deletes what a scenario has made, and holds that nothing remains of
// any membership: in the API, in the kernel, on the switch, in the agent.
func (c *cluster) cleanUp(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	soon := client.GracePeriodSeconds(1)
	for _, ns := range []string{namespace, otherNamespace} {
		for _, all := range []client.Object{&corev1.Pod{}, &v1alpha1.MulticastGroup{}} {
			if err := c.client.DeleteAllOf(ctx, all, client.InNamespace(ns), soon); err != nil {
				t.Errorf("delete all %T: %v", all, err)
			}
		}
	}
	c.eventually(t, "all pods and groups to be gone", func() error {
		var pods corev1.PodList
		var groups v1alpha1.MulticastGroupList
		if err := c.client.List(ctx, &pods); err != nil {
			return err
		}
		if err := c.client.List(ctx, &groups); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			return fmt.Errorf("pod %s is still there", pod.Name)
		}
		for _, group := range groups.Items {
			return fmt.Errorf("group %s is still there: %+v", group.Name, group.Status)
		}
		return nil
	})
	c.eventually(t, "every pod's process to end", func() error {
		// The sandboxes' own process too: it is the same program.
		if pids := append(processWith("/pod"), processWith("/receiver")...); len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
	c.idleAgain(t)
}

// idleAgain waits until nothing is left of any membership.
func (c *cluster) idleAgain(t *testing.T) {
	t.Helper()
	c.entries(t, 0)
	c.eventually(t, "the agent to hold what it held before any membership", c.idle)
	for _, nic := range []string{"rdma0", podNIC} {
		c.eventually(t, "no membership on "+nic, func() error {
			groups, err := igmpGroups(0, nic)
			if err != nil {
				return err
			}
			for _, group := range groups {
				if group != allHosts {
					return fmt.Errorf("still a member of %s", group)
				}
			}
			return nil
		})
	}
}

// idle is nil when the agent holds nothing of any membership.
func (c *cluster) idle() error {
	now, err := c.agentResources()
	if err == nil && now != c.held {
		err = fmt.Errorf("it holds %+v, before %+v", now, c.held)
	}
	return err
}

var allHosts = netip.MustParseAddr("224.0.0.1")

// settle waits until the agent holds the same for a second, and takes it for
// what it holds when idle.
func (c *cluster) settle(t *testing.T) {
	t.Helper()
	c.eventually(t, "the agent to settle", func() error {
		before, err := c.agentResources()
		if err != nil {
			return err
		}
		time.Sleep(time.Second)
		after, err := c.agentResources()
		if err == nil && (before != after || after.channels == 0) {
			err = fmt.Errorf("it held %+v, then %+v", before, after)
		}
		c.held = after
		return err
	})
}
