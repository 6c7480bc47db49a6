//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster is the whole of it: one node, and this project's programs.
type cluster struct {
	settings   settings
	dir        string // configuration of its programs
	running    map[string]*process
	client     client.Client // the administrator's
	rest       rest.Interface
	monitor    *process // of the switch
	apiServer  *process
	containerd *process
	agent      *process
	// held is what the agent holds open when there is nothing to be a member of.
	held agentResources
	// netNamespaces is how many there were in the kernel before any pod.
	netNamespaces int
}

// startCluster starts everything and returns when the node is ready. One after
// the other: on a slow machine the API server gives up when it isn't alone.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	s, err := settingsFromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{settings: s, dir: t.TempDir(), running: map[string]*process{}}
	if err := os.MkdirAll(s.logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", s.containerd+":"+os.Getenv("PATH"))
	t.Cleanup(c.stopAll)

	prepareMachine(t)
	c.startSwitchMonitor(t)
	c.writeCredentials(t)
	for user, token := range staticTokens {
		c.writeKubeconfig(t, "kubeconfig-"+user, token)
	}
	c.connect(t)
	c.startEtcd(t)
	c.startAPIServer(t)
	c.waitForAPIServer(t)
	c.startControllers(t)
	c.startContainerd(t)
	c.importImages(t)
	c.startKubelet(t)
	c.eventually(t, "the node to be ready", func() error { return c.nodeReady() })
	return c
}

func (c *cluster) waitForAPIServer(t *testing.T) {
	t.Helper()
	c.eventually(t, "the API server", func() error {
		// It ends when its own start takes it more than 30 s, as it may on a
		// machine that has other work; a node would start it again.
		if !c.apiServer.lives() {
			t.Logf("kube-apiserver has ended while it started: %s", tail(c.apiServer.log))
			c.startAPIServer(t)
		}
		c.apiServer.starting = true
		return c.rest.Get().AbsPath("/readyz").Do(context.Background()).Error()
	})
	c.apiServer.starting = false
}

// kubectl runs kubectl as the administrator.
func (c *cluster) kubectl(args ...string) (string, error) {
	return output(append([]string{filepath.Join(c.settings.kubernetes, "kubectl"), "--kubeconfig=" + c.path("kubeconfig-"+adminUser)}, args...)...)
}

// connect makes the administrator's clients.
func (c *cluster) connect(t *testing.T) {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	config := &rest.Config{
		Host:            apiServer,
		BearerToken:     staticTokens[adminUser],
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.path("apiserver.crt")},
		QPS:             -1,
		// A request that was sent to an API server about to stop may never be
		// answered.
		Timeout: 30 * time.Second,
	}
	var err error
	if c.client, err = client.New(config, client.Options{Scheme: all}); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c.rest = clients.RESTClient()
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
