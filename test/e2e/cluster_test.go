//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster is the whole of it: one node, and this project's programs.
type cluster struct {
	settings settings
	dir      string // configuration of its programs
	running  map[string]*process
	client   client.Client // the administrator's
	monitor  *process      // of the switch
	agent    *process
	// idle is what the agent holds open when there is nothing to be a member of.
	idle agentResources
}

// startCluster starts everything at once, since every part waits for those that
// it needs, and returns when the node is ready.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	s, err := settingsFromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{settings: s, dir: t.TempDir(), running: map[string]*process{}}
	for _, dir := range []string{s.logs(), c.path("apiserver")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", s.containerd+":"+os.Getenv("PATH"))
	t.Cleanup(c.stopAll)

	prepareMachine(t)
	c.startSwitchMonitor(t)
	c.writeCredentials(t)
	for user, token := range staticTokens {
		c.writeKubeconfig(t, "kubeconfig-"+user, token)
	}
	c.startEtcd(t)
	c.startAPIServer(t)
	c.startContainerd(t)
	c.importImages(t)
	c.waitForAPIServer(t)
	c.startControllers(t)
	c.startKubelet(t)
	c.client = c.newClient(t)
	t.Log("API server is ready")
	c.eventually(t, "the node to be ready", func() error { return c.nodeReady() })
	t.Log("node is ready")
	return c
}

func (c *cluster) waitForAPIServer(t *testing.T) {
	t.Helper()
	c.eventually(t, "the API server", func() error {
		_, err := c.kubectl("get", "--raw=/readyz")
		return err
	})
}

// kubectl runs kubectl as the administrator.
func (c *cluster) kubectl(args ...string) (string, error) {
	return output(append([]string{filepath.Join(c.settings.kubernetes, "kubectl"), "--kubeconfig=" + c.path("kubeconfig-"+adminUser)}, args...)...)
}

func (c *cluster) newClient(t *testing.T) client.Client {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	cl, err := client.New(&rest.Config{
		Host:            apiServer,
		BearerToken:     staticTokens[adminUser],
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.path("apiserver/apiserver.crt")},
		QPS:             -1,
	}, client.Options{Scheme: all})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func (c *cluster) nodeReady() error {
	var node corev1.Node
	if err := c.client.Get(context.Background(), client.ObjectKey{Name: nodeName}, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return fmt.Errorf("conditions %v, taints %v", node.Status.Conditions, node.Spec.Taints)
}
