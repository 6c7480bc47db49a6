package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const (
	// SystemNamespace is where the agents' Leases are.
	SystemNamespace = "rdma-multicast-system"

	controllerUser = "system:serviceaccount:" + SystemNamespace + ":rdma-multicast-controller"
	agentUser      = "system:serviceaccount:" + SystemNamespace + ":rdma-multicast-agent"

	// maxNodes fit the addresses that the nodes are given.
	maxNodes = 200
)

// Options say what cluster to start.
type Options struct {
	ControlPlane ControlPlaneOptions
	// Nodes is how many hollow nodes there are, 1 to 200: node-1, node-2, ...
	Nodes int
	// InfiniBand is how many of them, the last ones, are on an InfiniBand
	// subnet; the others are on RoCE.
	InfiniBand int
	// Log gets what the controller, the agents and the hollow kubelet log.
	Log logr.Logger
}

// Cluster is a running cluster: control plane, controller, hollow nodes.
type Cluster struct {
	*ControlPlane
	// Client is the administrator's. It reads past any cache.
	Client client.Client
	// Fabric is the simulated network that all nodes are on.
	Fabric *rdmatest.Fabric
	// Subnet is the InfiniBand side of it; nil: no node is on InfiniBand.
	Subnet *rdmatest.Subnet
	// Nodes in the order of their names.
	Nodes []*Node

	root   string
	dir    string // the nodes' sockets
	pods   *hollowPods
	closer []func() error // in the order of starting
}

// Start starts a cluster. What it had started before an error is stopped again.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Nodes < 1 || opts.Nodes > maxNodes {
		return nil, fmt.Errorf("%d hollow nodes: want 1 to %d", opts.Nodes, maxNodes)
	}
	if opts.InfiniBand < 0 || opts.InfiniBand > opts.Nodes {
		return nil, fmt.Errorf("%d hollow nodes on InfiniBand: want 0 to %d, all nodes", opts.InfiniBand, opts.Nodes)
	}
	c := &Cluster{}
	if err := c.start(ctx, opts); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, opts Options) error {
	var err error
	if c.root = opts.ControlPlane.Root; c.root == "" {
		if c.root, err = ModuleRoot(); err != nil {
			return err
		}
		opts.ControlPlane.Root = c.root
	}
	// Not below TMPDIR: a socket's path is limited to 107 bytes.
	if c.dir, err = os.MkdirTemp("/tmp", "rdma-multicast-"); err != nil {
		return err
	}
	c.closer = append(c.closer, func() error { return os.RemoveAll(c.dir) })
	if c.ControlPlane, err = StartControlPlane(ctx, opts.ControlPlane); err != nil {
		return err
	}
	c.closer = append(c.closer, c.ControlPlane.Stop)

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if c.Client, err = client.New(c.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := applyFolder(ctx, c.Client, filepath.Join(c.root, "config", "rbac")); err != nil {
		return err
	}
	if err := c.startNodes(ctx, opts); err != nil {
		return err
	}
	if err := c.startKubelet(scheme, opts.Log); err != nil {
		return err
	}
	return c.startController(opts.Log)
}

func (c *Cluster) startNodes(ctx context.Context, opts Options) error {
	config, err := c.User(agentUser)
	if err != nil {
		return err
	}
	c.Fabric = rdmatest.NewFabric()
	if opts.InfiniBand > 0 {
		c.Subnet = c.Fabric.AddSubnet(subnetName, rdmatest.SubnetOptions{})
		c.Subnet.AddPartition(rdmatest.Partition{PKey: PodPKey})
	}
	for i := range opts.Nodes {
		subnet := c.Subnet
		if i < opts.Nodes-opts.InfiniBand {
			subnet = nil
		}
		node, err := newNode(c.Fabric, subnet, byte(i+1), c.dir, config, opts.Log)
		if err != nil {
			return fmt.Errorf("start hollow node %d: %w", i+1, err)
		}
		c.Nodes = append(c.Nodes, node)
		c.closer = append(c.closer, func() error { node.Runtime.Close(); return nil })
		if err := node.register(ctx, c.Client); err != nil {
			return err
		}
		if err := node.StartAgent(); err != nil {
			return err
		}
		c.closer = append(c.closer, node.StopAgent)
	}
	return nil
}

func (c *Cluster) startKubelet(scheme *runtime.Scheme, log logr.Logger) error {
	mgr, err := ctrl.NewManager(c.Config, ctrl.Options{
		Scheme: scheme, Logger: log.WithName("hollow-kubelet"),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return fmt.Errorf("hollow kubelet: %w", err)
	}
	c.pods = &hollowPods{client: mgr.GetClient(), nodes: c.Nodes, log: log.WithName("hollow-kubelet"), pods: map[types.NamespacedName]*hollowPod{}}
	if err := c.pods.setupWithManager(mgr); err != nil {
		return fmt.Errorf("hollow kubelet: %w", err)
	}
	// Sandboxes go once nothing makes new ones.
	c.closer = append(c.closer, c.pods.stopAll)
	c.run("hollow kubelet", mgr, log)
	return nil
}

func (c *Cluster) startController(log logr.Logger) error {
	config, err := c.User(controllerUser)
	if err != nil {
		return err
	}
	mgr, err := controllers.NewClusterManager(config, controllers.ClusterOptions{AgentNamespace: SystemNamespace, Log: log.WithName("controller")})
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	c.run("controller", mgr, log)
	return nil
}

// run runs a manager until Stop.
func (c *Cluster) run(name string, mgr ctrl.Manager, log logr.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := mgr.Start(ctx)
		if err != nil {
			log.Error(err, name+" has ended")
		}
		done <- err
	}()
	c.closer = append(c.closer, func() error {
		cancel()
		if err := <-done; err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// Node by name; nil: there is none.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// PodNetNS is the path of the network namespace of a pod's sandbox, "" for a
// host-network pod. false: the pod has no sandbox, or no more.
func (c *Cluster) PodNetNS(pod *corev1.Pod) (string, bool) {
	known := c.pods.known(client.ObjectKeyFromObject(pod))
	if known == nil || known.uid != pod.UID {
		return "", false
	}
	sandbox := c.pods.sandbox(known)
	if sandbox == nil {
		return "", false
	}
	return sandbox.netns, true
}

// Stop ends everything, the newest first: sandboxes, agents, control plane.
// Nothing is left behind, whatever the error. Stopping twice is harmless.
func (c *Cluster) Stop() error {
	var errs []error
	for i := len(c.closer) - 1; i >= 0; i-- {
		errs = append(errs, c.closer[i]())
	}
	c.closer = nil
	return errors.Join(errs...)
}
