package main

import (
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/internal/agent"
	"github.com/rdma-multicast/rdma-multicast/internal/cli"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const (
	fabricKernel    = "kernel"
	fabricSimulated = "simulated"

	bootIDPath = "/proc/sys/kernel/random/boot_id"
)

// defaultSelfTestGroup is organization-local (RFC 2365), as is its neighbour,
// which the self-test joins too.
const defaultSelfTestGroup = "239.193.77.76"

// config is the command line.
type config struct {
	cli.Flags
	nodeName       string
	namespace      string
	fabric         string
	nodeNetNS      string
	criEndpoint    string
	nriSocket      string
	perPod         int
	perNode        int
	selfTestGroup  string
	leaseDuration  time.Duration
	gatherInterval time.Duration
}

func parse(args []string, getenv func(string) string, stdout, stderr io.Writer) (*config, error) {
	c := &config{}
	if err := c.Parse("agent", args, stdout, stderr, func(f *flag.FlagSet) { c.register(f, getenv) }); err != nil {
		return nil, err
	}
	return c, c.validate()
}

func (c *config) register(f *flag.FlagSet, getenv func(string) string) {
	f.StringVar(&c.nodeName, "node-name", getenv("NODE_NAME"), "`name` of the Node that the agent runs on (environment: NODE_NAME)")
	f.StringVar(&c.namespace, "namespace", getenv("POD_NAMESPACE"), "the agent's own `namespace`, where its Lease is kept (environment: POD_NAMESPACE)")
	f.StringVar(&c.fabric, "fabric", fabricKernel, "`which` RDMA stack memberships are held in: kernel, or simulated for clusters without RDMA (nothing is joined on real hardware then)")
	f.StringVar(&c.nodeNetNS, "node-netns", "/proc/1/ns/net", "`path` of the node's own network namespace; empty: the agent's")
	f.StringVar(&c.criEndpoint, "cri-endpoint", "unix:///run/containerd/containerd.sock", "the container runtime's CRI `socket`")
	f.StringVar(&c.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket `path`; empty: NRI is off, and a pod is left only after its network has gone")
	f.IntVar(&c.perPod, "max-memberships-per-pod", agent.DefaultMaxMembershipsPerPod, "`number` of memberships that a pod can have; what it asks for beyond is refused")
	f.IntVar(&c.perNode, "max-memberships-per-node", agent.DefaultMaxMembershipsPerNode, "`number` of memberships that the node can have; what is asked for beyond is refused")
	f.StringVar(&c.selfTestGroup, "self-test-group", defaultSelfTestGroup, "multicast `address` of the scratch group that is joined and left on each RDMA interface of the node at the start, together with the one that differs in the last bit, to see that the kernel does what it should; empty: nothing is tried out")
	f.DurationVar(&c.leaseDuration, "lease-duration", controllers.DefaultLeaseDuration, "`time` after which an agent that doesn't renew its Lease counts as gone")
	f.DurationVar(&c.gatherInterval, "gather-interval", controllers.DefaultGatherInterval, "`time` for which changes of the node's object that nothing waits for are gathered into one write")
}

// validate names the flags that are wrong, all of them.
func (c *config) validate() error {
	var w cli.Wrong
	c.Validate(&w)
	if c.nodeName == "" {
		w.Flag("node-name", "missing: the name of the Node that the agent runs on, or set NODE_NAME")
	}
	if c.namespace == "" {
		w.Flag("namespace", "missing: the agent's own namespace, or set POD_NAMESPACE")
	}
	if c.fabric != fabricKernel && c.fabric != fabricSimulated {
		w.Flag("fabric", "%q is neither %s nor %s", c.fabric, fabricKernel, fabricSimulated)
	}
	if !strings.HasPrefix(c.criEndpoint, "unix:///") {
		w.Flag("cri-endpoint", "%q isn't a socket: unix:// and an absolute path", c.criEndpoint)
	}
	if c.nriSocket != "" && !strings.HasPrefix(c.nriSocket, "/") {
		w.Flag("nri-socket", "%q isn't an absolute path", c.nriSocket)
	}
	if c.perPod < 1 {
		w.Flag("max-memberships-per-pod", "%d: at least 1", c.perPod)
	}
	if c.perNode < 1 {
		w.Flag("max-memberships-per-node", "%d: at least 1", c.perNode)
	}
	if c.leaseDuration < 3*time.Second {
		w.Flag("lease-duration", "%v: at least 3s", c.leaseDuration)
	}
	if c.gatherInterval <= 0 {
		w.Flag("gather-interval", "%v: must be positive", c.gatherInterval)
	}
	if _, err := c.scratchGroup(); err != nil {
		w.Flag("self-test-group", "%w", err)
	}
	return w.Err()
}

// scratchGroup is the zero Addr where nothing is to be tried out.
func (c *config) scratchGroup() (netip.Addr, error) {
	if c.selfTestGroup == "" {
		return netip.Addr{}, nil
	}
	group, err := netip.ParseAddr(c.selfTestGroup)
	if err == nil && !group.IsMulticast() {
		err = fmt.Errorf("%v isn't a multicast address", group)
	}
	return group, err
}

// options are the agent's, with everything looked up that this machine tells.
func (c *config) options(log logr.Logger) (agent.Options, error) {
	o := agent.Options{
		NodeName:              c.nodeName,
		Namespace:             c.namespace,
		CRIEndpoint:           c.criEndpoint,
		NRISocket:             c.nriSocket,
		HealthAddr:            c.HealthAddress,
		MetricsAddr:           c.MetricsAddress,
		MaxMembershipsPerPod:  c.perPod,
		MaxMembershipsPerNode: c.perNode,
		LeaseDuration:         c.leaseDuration,
		GatherInterval:        c.gatherInterval,
		Log:                   log,
	}
	var err error
	if o.SelfTestGroup, err = c.scratchGroup(); err != nil {
		return o, err
	}
	if o.Config, err = c.RESTConfig(); err != nil {
		return o, err
	}
	bootID, err := os.ReadFile(bootIDPath)
	if err != nil {
		return o, fmt.Errorf("reading the boot ID: %w", err)
	}
	o.BootID = strings.TrimSpace(string(bootID))
	if c.fabric == fabricSimulated {
		o.Host, o.Simulated, o.NodeInterfacesOnly = simulatedHost(c.nodeName), true, true
		return o, nil
	}
	o.Host, o.NodeNetNS = rdma.Local(), c.nodeNetNS
	return o, nil
}

// simulatedHost is a machine of its own, with one NIC that all pods share.
func simulatedHost(nodeName string) *rdma.Host {
	node := rdmatest.NewFabric().AddNode(nodeName)
	node.AddNIC("sim0", "simeth0", netip.MustParsePrefix("192.0.2.1/24"))
	return node.Host()
}
