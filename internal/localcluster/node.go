package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/internal/agent"
	"github.com/rdma-multicast/rdma-multicast/internal/sandbox/sandboxtest"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const (
	// NICDevice is the name of each hollow node's one RDMA device.
	NICDevice = "sim_0"
	// NICInterface is its network interface on RoCE.
	NICInterface = "rdma0"
	// IPoIBInterface is its network interface on InfiniBand.
	IPoIBInterface = "ib0"
	// PodInterface is a pod's interface on the RDMA NIC, as Multus would name it:
	// a macvlan on RoCE, an IPoIB child on InfiniBand. Its eth0 isn't
	// RDMA-capable.
	PodInterface = "net1"
	// PodPKey is the partition of pods' IPoIB children.
	PodPKey = 0x8001

	defaultPKey = 0xffff
	subnetName  = "infiniband"
	podBits     = 16 // of all subnets
)

// Node is a hollow node.
type Node struct {
	// Name of the Node object and of the machine in the fabric.
	Name string
	// Machine is the node on the simulated fabric, whose own tables tell what
	// its kernel really holds.
	Machine *rdmatest.Node
	// InfiniBand: it is on InfiniBand, not on RoCE.
	InfiniBand bool
	// Interface is the network interface of its RDMA device.
	Interface string
	// Runtime is the container runtime, which has no containers.
	Runtime *sandboxtest.Runtime
	// API is between the node's agent and the API server.
	API *APITap

	number  byte // from 1; third byte of the addresses
	bootID  string
	address netip.Addr
	dir     string
	config  *rest.Config // the agent's
	log     logr.Logger

	mu        sync.Mutex
	addresses map[byte]bool // last bytes of pods' addresses in use
	sandboxes int
	stopAgent func() error
}

// sandboxNetwork is a sandbox with its network.
type sandboxNetwork struct {
	id    string
	netns string // "": host network
	podIP netip.Addr
	host  byte // last byte of its addresses
}

// newNode adds a machine to the fabric, on RoCE if there is no subnet, and starts
// its runtime, which speaks CRI and, as containerd 2 does by default, NRI.
func newNode(fabric *rdmatest.Fabric, subnet *rdmatest.Subnet, number byte, dir string, config *rest.Config, log logr.Logger) (*Node, error) {
	n := &Node{
		Name:      fmt.Sprintf("node-%d", number),
		API:       &APITap{},
		Interface: NICInterface,
		number:    number,
		bootID:    uuid.NewString(),
		dir:       dir,
		log:       log.WithValues("node", fmt.Sprintf("node-%d", number)),
		addresses: map[byte]bool{},
	}
	n.Machine = fabric.AddNode(n.Name)
	if subnet == nil {
		n.address = n.rdmaAddress(1)
		n.Machine.AddNIC(NICDevice, n.Interface, netip.PrefixFrom(n.address, podBits))
	} else {
		n.InfiniBand, n.Interface = true, IPoIBInterface
		n.address = n.rdmaAddress(1)
		n.Machine.AddHCA(subnet, NICDevice, n.Interface, netip.PrefixFrom(n.address, podBits))
		n.Machine.SetPKeys(NICDevice, defaultPKey, PodPKey)
	}
	n.config = rest.CopyConfig(config)
	n.config.Wrap(n.API.wrap)

	var err error
	if n.Runtime, err = sandboxtest.Start(n.socket("cri")); err != nil {
		return nil, err
	}
	if err := n.Runtime.StartNRI(n.socket("nri")); err != nil {
		n.Runtime.Close()
		return nil, err
	}
	return n, nil
}

// rdmaAddress is one of the node's addresses on its RDMA network.
func (n *Node) rdmaAddress(host byte) netip.Addr {
	if n.InfiniBand {
		return netip.AddrFrom4([4]byte{10, 79, n.number, host})
	}
	return netip.AddrFrom4([4]byte{10, 77, n.number, host})
}

func (n *Node) socket(protocol string) string {
	return filepath.Join(n.dir, n.Name+"-"+protocol+".sock")
}

func (n *Node) labels() labels.Set {
	return labels.Set{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux"}
}

// register makes the Node object as kubelet does.
func (n *Node) register(ctx context.Context, admin client.Client) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.labels()}}
	if err := admin.Create(ctx, node); err != nil {
		return fmt.Errorf("register %s: %w", n.Name, err)
	}
	// The admission plugin's not-ready taint is the node controller's to take
	// away, and there is none here.
	before := node.DeepCopy()
	node.Spec.Taints = nil
	if err := admin.Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("register %s: %w", n.Name, err)
	}
	before = node.DeepCopy()
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		BootID: n.bootID, KubeletVersion: "hollow", ContainerRuntimeVersion: "simulated://0", KernelVersion: "simulated",
		OSImage: "hollow node", OperatingSystem: "linux", Architecture: "amd64",
	}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: n.address.String()},
		{Type: corev1.NodeHostName, Address: n.Name},
	}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	now := metav1.Now()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "HollowKubeletReady",
		Message: "there is no kubelet here, and no container", LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	if err := admin.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("register %s: %w", n.Name, err)
	}
	return nil
}

// StartAgent runs the node's agent until StopAgent.
func (n *Node) StartAgent() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopAgent != nil {
		return fmt.Errorf("the agent of %s runs already", n.Name)
	}
	a, err := agent.New(agent.Options{
		Config:      n.config,
		NodeName:    n.Name,
		Namespace:   SystemNamespace,
		BootID:      n.bootID,
		Host:        n.Machine.Host(),
		Simulated:   true,
		CRIEndpoint: "unix://" + n.socket("cri"),
		NRISocket:   n.socket("nri"),
		// A small cluster can afford to tell its sums sooner.
		GatherInterval: time.Second,
		Log:            n.log.WithName("agent"),
	})
	if err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := a.Run(ctx)
		if err != nil {
			n.log.Error(err, "the agent has ended")
		}
		done <- err
	}()
	n.stopAgent = func() error {
		cancel()
		return <-done
	}
	return nil
}

// StopAgent ends the agent as SIGTERM does, and waits for it.
func (n *Node) StopAgent() error {
	n.mu.Lock()
	stop := n.stopAgent
	n.stopAgent = nil
	n.mu.Unlock()
	if stop == nil {
		return nil
	}
	if err := stop(); err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	return nil
}

// runSandbox makes a pod's network namespace with its interfaces, and then the
// sandbox, as a runtime does.
func (n *Node) runSandbox(pod *corev1.Pod) (*sandboxNetwork, error) {
	n.mu.Lock()
	n.sandboxes++
	s := &sandboxNetwork{id: fmt.Sprintf("%s-%d", n.Name, n.sandboxes), podIP: n.address}
	if !pod.Spec.HostNetwork {
		for host := byte(2); host < 255 && s.host == 0; host++ {
			if !n.addresses[host] {
				s.host = host
			}
		}
		if s.host == 0 {
			n.mu.Unlock()
			return nil, errors.New("all addresses of the node are in use")
		}
		n.addresses[s.host] = true
	}
	n.mu.Unlock()

	if s.host != 0 {
		s.netns = "/run/netns/" + s.id
		s.podIP = netip.AddrFrom4([4]byte{10, 78, n.number, s.host})
		n.Machine.AddNetNS(s.netns)
		n.Machine.AddPlainInterface(s.netns, "eth0", netip.PrefixFrom(s.podIP, podBits))
		n.addPodInterface(s.netns, netip.PrefixFrom(n.rdmaAddress(s.host), podBits))
	}
	err := n.Runtime.AddSandbox(sandboxtest.Sandbox{
		ID: s.id, PodUID: string(pod.UID), PodNamespace: pod.Namespace, PodName: pod.Name,
		NetNS: s.netns, Annotations: pod.Annotations,
	})
	if err != nil {
		n.removeNetwork(s)
		return nil, err
	}
	return s, nil
}

// addPodInterface gives a pod its interface on the RDMA NIC.
func (n *Node) addPodInterface(netns string, address netip.Prefix) {
	if n.InfiniBand {
		n.Machine.AddIPoIBChild(netns, PodInterface, n.Interface, PodPKey, address)
		return
	}
	n.Machine.AddMACVLAN(netns, PodInterface, n.Interface, address)
}

// stopSandbox stops a sandbox, then takes its network away, then the sandbox.
func (n *Node) stopSandbox(s *sandboxNetwork) error {
	if err := n.Runtime.StopSandbox(s.id); err != nil {
		return err
	}
	n.removeNetwork(s)
	return n.Runtime.RemoveSandbox(s.id)
}

func (n *Node) removeNetwork(s *sandboxNetwork) {
	if s.host == 0 {
		return
	}
	n.mu.Lock()
	gone := !n.addresses[s.host]
	delete(n.addresses, s.host)
	n.mu.Unlock()
	if !gone {
		n.Machine.DeleteNetNS(s.netns)
	}
}
