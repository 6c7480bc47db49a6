//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// productNamespace is where config/ puts the project's own objects.
const productNamespace = "rdma-multicast-system"

// agentMetrics is where the agent serves its metrics.
const agentMetrics = "127.0.0.1:8083"

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
		"--health-address=127.0.0.1:8082", "--metrics-address="+agentMetrics)
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
