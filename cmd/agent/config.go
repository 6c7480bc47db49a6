package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/internal/agent"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const (
	fabricKernel    = "kernel"
	fabricSimulated = "simulated"

	bootIDPath = "/proc/sys/kernel/random/boot_id"
)

// config is the command line.
type config struct {
	kubeconfig     string
	nodeName       string
	namespace      string
	fabric         string
	nodeNetNS      string
	criEndpoint    string
	nriSocket      string
	healthAddress  string
	metricsAddress string
	perPod         int
	perNode        int
	leaseDuration  time.Duration
	gatherInterval time.Duration
	logFormat      string
	verbosity      int
}

func parse(args []string, getenv func(string) string, output io.Writer) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("agent", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` that says how the API server is reached; empty: the pod's service account")
	f.StringVar(&c.nodeName, "node-name", getenv("NODE_NAME"), "`name` of the Node that the agent runs on (environment: NODE_NAME)")
	f.StringVar(&c.namespace, "namespace", getenv("POD_NAMESPACE"), "the agent's own `namespace`, where its Lease is kept (environment: POD_NAMESPACE)")
	f.StringVar(&c.fabric, "fabric", fabricKernel, "`which` RDMA stack memberships are held in: kernel, or simulated for clusters without RDMA (nothing is joined on real hardware then)")
	f.StringVar(&c.nodeNetNS, "node-netns", "/proc/1/ns/net", "`path` of the node's own network namespace; empty: the agent's")
	f.StringVar(&c.criEndpoint, "cri-endpoint", "unix:///run/containerd/containerd.sock", "the container runtime's CRI `socket`")
	f.StringVar(&c.nriSocket, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket `path`; empty: NRI is off, and a pod is left only after its network has gone")
	f.StringVar(&c.healthAddress, "health-address", ":8081", "`host:port` of /healthz and /readyz; 0: off")
	f.StringVar(&c.metricsAddress, "metrics-address", ":8080", "`host:port` of /metrics; 0: off")
	f.IntVar(&c.perPod, "max-memberships-per-pod", agent.DefaultMaxMembershipsPerPod, "`number` of memberships that a pod can have; what it asks for beyond is refused")
	f.IntVar(&c.perNode, "max-memberships-per-node", agent.DefaultMaxMembershipsPerNode, "`number` of memberships that the node can have; what is asked for beyond is refused")
	f.DurationVar(&c.leaseDuration, "lease-duration", controllers.DefaultLeaseDuration, "`time` after which an agent that doesn't renew its Lease counts as gone")
	f.DurationVar(&c.gatherInterval, "gather-interval", controllers.DefaultGatherInterval, "`time` for which changes of the node's object that nothing waits for are gathered into one write")
	f.StringVar(&c.logFormat, "log-format", "text", "`format` of the log: text or json")
	f.IntVar(&c.verbosity, "v", 0, "`level` of detail of the log, from 0")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: all options are flags, see --help", f.Arg(0))
	}
	return c, c.validate()
}

// validate names the flags that are wrong, all of them.
func (c *config) validate() error {
	var errs []error
	wrong := func(flag, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: "+format, append([]any{flag}, args...)...))
	}
	if c.nodeName == "" {
		wrong("node-name", "missing: the name of the Node that the agent runs on, or set NODE_NAME")
	}
	if c.namespace == "" {
		wrong("namespace", "missing: the agent's own namespace, or set POD_NAMESPACE")
	}
	if c.fabric != fabricKernel && c.fabric != fabricSimulated {
		wrong("fabric", "%q is neither %s nor %s", c.fabric, fabricKernel, fabricSimulated)
	}
	if !strings.HasPrefix(c.criEndpoint, "unix:///") {
		wrong("cri-endpoint", "%q isn't a socket: unix:// and an absolute path", c.criEndpoint)
	}
	if c.nriSocket != "" && !strings.HasPrefix(c.nriSocket, "/") {
		wrong("nri-socket", "%q isn't an absolute path", c.nriSocket)
	}
	for _, a := range []struct{ flag, value string }{{"health-address", c.healthAddress}, {"metrics-address", c.metricsAddress}} {
		if a.value == "" || a.value == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.value); err != nil {
			wrong(a.flag, "%w", err)
		}
	}
	if c.perPod < 1 {
		wrong("max-memberships-per-pod", "%d: at least 1", c.perPod)
	}
	if c.perNode < 1 {
		wrong("max-memberships-per-node", "%d: at least 1", c.perNode)
	}
	if c.leaseDuration < 3*time.Second {
		wrong("lease-duration", "%v: at least 3s", c.leaseDuration)
	}
	if c.gatherInterval <= 0 {
		wrong("gather-interval", "%v: must be positive", c.gatherInterval)
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		wrong("log-format", "%q is neither text nor json", c.logFormat)
	}
	return errors.Join(errs...)
}

// options are the agent's, with everything looked up that this machine tells.
func (c *config) options(log logr.Logger) (agent.Options, error) {
	o := agent.Options{
		NodeName:              c.nodeName,
		Namespace:             c.namespace,
		CRIEndpoint:           c.criEndpoint,
		NRISocket:             c.nriSocket,
		HealthAddr:            c.healthAddress,
		MetricsAddr:           c.metricsAddress,
		MaxMembershipsPerPod:  c.perPod,
		MaxMembershipsPerNode: c.perNode,
		LeaseDuration:         c.leaseDuration,
		GatherInterval:        c.gatherInterval,
		Log:                   log,
	}
	var err error
	if o.Config, err = c.restConfig(); err != nil {
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

func (c *config) restConfig() (*rest.Config, error) {
	if c.kubeconfig == "" {
		r, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: not given, and this isn't a pod with a service account: %w", err)
		}
		return r, nil
	}
	r, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return r, nil
}

// simulatedHost is a machine of its own, with one NIC that all pods share.
func simulatedHost(nodeName string) *rdma.Host {
	node := rdmatest.NewFabric().AddNode(nodeName)
	node.AddNIC("sim0", "simeth0", netip.MustParsePrefix("192.0.2.1/24"))
	return node.Host()
}

func (c *config) logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-c.verbosity)}
	if c.logFormat == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, options))
}
