//go:build realkernel

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherNamespace is one whose groups the pods of namespace may not ask for.
const otherNamespace = "e2e-other"

// TestCluster starts a cluster and plays the scenarios of scenarios.txt on it,
// one after the other: each leaves it without any membership.
func TestCluster(t *testing.T) {
	play(t, setUp(t))
}

// setUp starts everything, this project's programs too.
func setUp(t *testing.T) *cluster {
	t.Helper()
	start := time.Now()
	c := startCluster(t)
	t.Logf("the node was ready after %.0f s", time.Since(start).Seconds())
	for _, name := range []string{namespace, otherNamespace} {
		c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c.installProduct(t)
	c.rdmaReady(t, "True", v1alpha1.ReasonRDMAAvailable)
	c.settle(t)
	c.netNamespaces = countNetNamespaces(t)
	c.eventually(t, "the namespace's ServiceAccount", func() error {
		var account corev1.ServiceAccount
		return c.client.Get(context.Background(), metaKey(namespace, "default"), &account)
	})
	t.Logf("the agent was ready after %.0f s", time.Since(start).Seconds())
	return c
}

func play(t *testing.T, c *cluster) {
	for _, scenario := range []struct {
		name string
		play func(*testing.T, *cluster)
	}{
		{"group then pod", groupThenPod},
		{"pod then group", podThenGroup},
		{"verbs only receiver", verbsOnlyReceiver},
		{"grace period", gracePeriod},
		{"grace period without NRI", gracePeriodWithoutNRI},
		{"force deleted pod", forceDeletedPod},
		{"containerd restarted", containerdRestarted},
		{"container crash", containerCrash},
		{"job completes", jobCompletes},
		{"group deleted and applied again", groupDeletedAndAppliedAgain},
		{"two pods on the node's interface", twoPodsOnTheNodesInterface},
		{"running pod", runningPod},
		{"node members", nodeMembers},
		{"many pods", manyPods},
		{"API server away", apiServerAway},
		{"refused at apply", refusedAtApply},
		{"bad requests", badRequests},
		{"no rdma_ucm", noRDMAUCM},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Cleanup(func() { c.cleanUp(t) })
			scenario.play(t, c)
		})
	}
}
