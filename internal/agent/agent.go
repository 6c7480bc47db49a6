// Package agent puts the node agent together: the one constructor that
// cmd/agent and the hollow nodes of internal/localcluster share.
//
//	a, err := agent.New(agent.Options{Config: config, NodeName: "n1", Host: rdma.Local(), ...})
//	err = a.Run(ctx)
//
// An agent whose API server is away at start, or goes away later, stays up: it
// tries again for as long as it takes, and keeps what it has joined. Pods that
// end meanwhile are left, since their sandboxes tell; pods and groups that come
// meanwhile are joined once the API server is back.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/internal/sandbox"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

const (
	// fieldOwner is what the API server's managedFields call the agent.
	fieldOwner = "rdma-multicast-agent"

	// DefaultMaxMembershipsPerPod is what one pod can have at most.
	DefaultMaxMembershipsPerPod = 64
	// DefaultMaxMembershipsPerNode is what all pods of the node together can.
	DefaultMaxMembershipsPerNode = 4096
)

// Options of an Agent.
type Options struct {
	// Config of the API server's client. Its QPS is ignored: the server's own
	// priority and fairness governs.
	Config *rest.Config
	// NodeName is the name of the Node that the agent runs on.
	NodeName string
	// Namespace is the agent's own, where its Lease is.
	Namespace string
	// BootID of the running kernel: /proc/sys/kernel/random/boot_id.
	BootID string

	// Host is rdma.Local(), or a node of a simulated fabric.
	Host *rdma.Host
	// NodeNetNS is the path of the node's own network namespace, such as
	// /proc/1/ns/net; "" for that of this process.
	NodeNetNS string
	// Simulated: Host is simulated; said in log, node object and metrics.
	Simulated bool
	// NodeInterfacesOnly: pods' own network namespaces aren't looked into; all
	// pods use the node's interfaces. For a simulated fabric under pods that
	// are real.
	NodeInterfacesOnly bool

	// CRIEndpoint is the runtime's socket, such as
	// unix:///run/containerd/containerd.sock.
	CRIEndpoint string
	// NRISocket, such as /var/run/nri/nri.sock; "" turns NRI off: a pod is
	// then left when the runtime is seen to have stopped its sandbox.
	NRISocket string

	// HealthAddr serves /healthz and /readyz, MetricsAddr serves /metrics, as
	// host:port. "" or "0": off.
	HealthAddr, MetricsAddr string
	// Metrics is what the agent's own metrics are registered with; nil: with
	// nothing.
	Metrics prometheus.Registerer

	// MaxMembershipsPerPod and MaxMembershipsPerNode; zero: the defaults.
	MaxMembershipsPerPod, MaxMembershipsPerNode int

	// SelfTestGroup is the scratch group that multicast is tried out with at the
	// start, on each RDMA interface of the node; the zero Addr: nothing is.
	SelfTestGroup netip.Addr

	// LeaseDuration of the agent's Lease; zero: controllers.DefaultLeaseDuration.
	LeaseDuration time.Duration
	// GatherInterval is how long changes of the MulticastNode that nothing
	// waits for are gathered; zero: controllers.DefaultGatherInterval.
	GatherInterval time.Duration
	// EventDelay is how long a problem lasts before there is an event about
	// it; zero: controllers.DefaultEventDelay.
	EventDelay time.Duration
	// CRIPollInterval; zero: sandbox.DefaultPollInterval.
	CRIPollInterval time.Duration

	Log logr.Logger
}

// validate names the field that is wrong.
func (o *Options) validate() error {
	var errs []error
	if o.Config == nil {
		errs = append(errs, errors.New("Config is missing: how the API server is reached"))
	}
	if o.NodeName == "" {
		errs = append(errs, errors.New("NodeName is missing: the name of the agent's Node"))
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("Namespace is missing: where the agent's Lease is kept"))
	}
	if o.BootID == "" {
		errs = append(errs, errors.New("BootID is missing: see /proc/sys/kernel/random/boot_id"))
	}
	if o.Host == nil {
		errs = append(errs, errors.New("Host is missing: rdma.Local() or a simulated node's"))
	}
	if o.CRIEndpoint == "" && o.NRISocket == "" {
		errs = append(errs, errors.New("CRIEndpoint is missing: pods' sandboxes can't be followed without the runtime's socket"))
	}
	if o.LeaseDuration != 0 && o.LeaseDuration < time.Second {
		errs = append(errs, fmt.Errorf("LeaseDuration is %v: at least a second", o.LeaseDuration))
	}
	if g := o.SelfTestGroup; g.IsValid() && !g.IsMulticast() {
		errs = append(errs, fmt.Errorf("SelfTestGroup is %v: not a multicast address", g))
	}
	if o.MaxMembershipsPerPod < 0 || o.MaxMembershipsPerNode < 0 {
		errs = append(errs, errors.New("limits on memberships can't be negative"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("agent options: %w", errors.Join(errs...))
	}
	return nil
}

// Agent is a node agent. It runs once.
type Agent struct {
	log     logr.Logger
	manager ctrl.Manager
	table   *membership.Table
	tracker *sandbox.Tracker
	planner *controllers.NodePlanner
}

// New puts an agent together. It talks to nothing yet: the API server, the
// runtime and rdma_cm may all be away.
func New(o Options) (*Agent, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	log := o.Log
	if log.GetSink() == nil {
		log = logr.Discard()
	}
	mgr, live, err := newManager(o, log)
	if err != nil {
		return nil, err
	}
	var metrics *controllers.NodeMetrics
	if o.Metrics != nil {
		if metrics, err = controllers.NewNodeMetrics(o.Metrics, fabricName(o.Simulated)); err != nil {
			return nil, err
		}
	}

	record := controllers.NewNodeRecord(live, o.NodeName, o.BootID, o.GatherInterval, log.WithName("record"))
	reporter := controllers.NewNodeReporter(live, mgr.GetCache(), mgr.GetEventRecorder(fieldOwner), o.EventDelay, log.WithName("report"))
	planner := controllers.NewNodePlanner(controllers.NodePlannerOptions{
		Host:               o.Host,
		NodeName:           o.NodeName,
		NodeNetNS:          o.NodeNetNS,
		NodeInterfacesOnly: o.NodeInterfacesOnly,
		Simulated:          o.Simulated,
		Limits: membership.Limits{
			PerPod:  orDefault(o.MaxMembershipsPerPod, DefaultMaxMembershipsPerPod),
			PerNode: orDefault(o.MaxMembershipsPerNode, DefaultMaxMembershipsPerNode),
			Groups:  v1alpha1.MaxNodeGroups,
		},
		Record:   record,
		Reporter: reporter,
		Metrics:  metrics,
		SelfTest: newSelfTest(o, metrics, log.WithName("self-test")),
		Log:      log.WithName("plan"),
	})
	table := membership.NewTable(membership.TableOptions{
		Host:      o.Host,
		Protocol:  record,
		Changed:   planner.Trigger,
		EpochBase: time.Now().UnixMilli(),
		Log:       log.WithName("membership"),
	})
	tracker := sandbox.NewTracker(sandbox.Options{
		CRIEndpoint:  o.CRIEndpoint,
		NRISocket:    o.NRISocket,
		NodeNetNS:    o.NodeNetNS,
		PollInterval: o.CRIPollInterval,
		Stopping: func(ctx context.Context, id string) {
			planner.Stopping(id)
			if err := table.LeaveScope(ctx, id); err != nil {
				log.Error(err, "sandbox isn't left yet", "sandbox", id)
			}
		},
		Changed: planner.Trigger,
		Ending:  planner.Ending,
		Log:     log.WithName("sandbox"),
	})
	planner.Table, planner.Sandboxes = table, tracker.Sandboxes

	lease := &controllers.NodeLease{Client: live, Namespace: o.Namespace, NodeName: o.NodeName, Duration: o.LeaseDuration, Log: log.WithName("lease")}
	for _, err := range []error{
		mgr.Add(record),
		mgr.Add(lease),
		planner.SetupWithManager(mgr),
		reporter.SetupWithManager(mgr),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("planned", func(*http.Request) error {
			if !planner.Planned() {
				return errors.New("memberships aren't planned yet: waiting for the API server and the container runtime")
			}
			return nil
		}),
	} {
		if err != nil {
			return nil, fmt.Errorf("putting the agent together: %w", err)
		}
	}
	if o.Simulated {
		log.Info("SIMULATED FABRIC: nothing is joined on real hardware", "node", o.NodeName)
	}
	return &Agent{log: log, manager: mgr, table: table, tracker: tracker, planner: planner}, nil
}

// Run runs the agent until ctx ends or a part of it fails for good. Planning
// stops first, then the ids are closed, by which the kernel leaves every group.
// Entries in the MulticastNode stay: the next process rejoins, and prunes them.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The table outlives planning.
	tableCtx, closeTable := context.WithCancel(context.WithoutCancel(ctx))
	defer closeTable()

	tableDone := run(cancel, func() error { return a.table.Run(tableCtx) })
	trackerDone := run(cancel, func() error { return a.tracker.Run(ctx) })
	err := a.manager.Start(ctx)
	cancel()
	err = errors.Join(err, <-trackerDone)
	a.planner.Close()
	closeTable()
	err = errors.Join(err, <-tableDone)
	if err != nil {
		return fmt.Errorf("running the agent: %w", err)
	}
	a.log.Info("agent has ended: its ids are closed")
	return nil
}

// run starts f and cancels when it returns.
func run(cancel func(), f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := f()
		cancel()
		done <- err
	}()
	return done
}

// newManager makes the manager, and the client that reads and writes past its
// cache.
func newManager(o Options, log logr.Logger) (ctrl.Manager, client.Client, error) {
	config := rest.CopyConfig(o.Config)
	config.QPS = -1
	scheme, err := newScheme()
	if err != nil {
		return nil, nil, err
	}
	mapper := newMapper()
	graceful := 10 * time.Second
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		// The kinds are known: no discovery, which the API server would have
		// to be there for.
		MapperProvider:          staticMapper(mapper),
		Cache:                   cache.Options{ByObject: controllers.NodeCache(o.NodeName), ReaderFailOnMissingInformer: false},
		HealthProbeBindAddress:  addressOrOff(o.HealthAddr),
		Metrics:                 metricsserver.Options{BindAddress: addressOrOff(o.MetricsAddr)},
		GracefulShutdownTimeout: &graceful,
		Logger:                  log,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("making the agent's manager: %w", err)
	}
	live, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, nil, fmt.Errorf("making the agent's client: %w", err)
	}
	return mgr, client.WithFieldOwner(live, fieldOwner), nil
}

// newSelfTest is nil where nothing is to be tried out.
func newSelfTest(o Options, metrics *controllers.NodeMetrics, log logr.Logger) *controllers.NodeSelfTest {
	if !o.SelfTestGroup.IsValid() {
		return nil
	}
	return &controllers.NodeSelfTest{Host: o.Host, NodeNetNS: o.NodeNetNS, Group: o.SelfTestGroup, Metrics: metrics, Log: log}
}

func fabricName(simulated bool) string {
	if simulated {
		return "simulated"
	}
	return "kernel"
}

func addressOrOff(address string) string {
	if address == "" {
		return "0"
	}
	return address
}

func orDefault(n, standard int) int {
	if n == 0 {
		return standard
	}
	return n
}
