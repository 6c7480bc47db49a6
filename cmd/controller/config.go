package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rdma-multicast/rdma-multicast/controllers"
)

// config is the command line.
type config struct {
	kubeconfig              string
	agentNamespace          string
	writesPerSecond         float64
	writeBurst              int
	leaderElect             bool
	leaderElectionNamespace string
	healthAddress           string
	metricsAddress          string
	logFormat               string
	verbosity               int
}

func parse(args []string, getenv func(string) string, output io.Writer) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("controller", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` that says how the API server is reached; empty: the pod's service account")
	f.StringVar(&c.agentNamespace, "agent-namespace", getenv("POD_NAMESPACE"), "`namespace` of the agents, where their Leases are (environment: POD_NAMESPACE)")
	f.Float64Var(&c.writesPerSecond, "status-writes-per-second", controllers.DefaultWritesPerSecond, "`number` of status writes a second, in the whole cluster, that only tell sums: each wakes every agent")
	f.IntVar(&c.writeBurst, "status-write-burst", controllers.DefaultWriteBurst, "`number` of such writes that may be made at once after a quiet time")
	f.BoolVar(&c.leaderElect, "leader-elect", false, "elect a leader; needed with more than one replica")
	f.StringVar(&c.leaderElectionNamespace, "leader-election-namespace", "", "`namespace` of the Lease that elects; empty: --agent-namespace")
	f.StringVar(&c.healthAddress, "health-address", ":8081", "`host:port` of /healthz and /readyz; 0: off")
	f.StringVar(&c.metricsAddress, "metrics-address", ":8080", "`host:port` of /metrics; 0: off")
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
	if c.agentNamespace == "" {
		wrong("agent-namespace", "missing: the namespace that the agents run in, or set POD_NAMESPACE")
	}
	if !(c.writesPerSecond > 0) {
		wrong("status-writes-per-second", "%g: must be positive", c.writesPerSecond)
	}
	if c.writeBurst < 1 {
		wrong("status-write-burst", "%d: at least 1", c.writeBurst)
	}
	for _, a := range []struct{ flag, value string }{{"health-address", c.healthAddress}, {"metrics-address", c.metricsAddress}} {
		if a.value == "" || a.value == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.value); err != nil {
			wrong(a.flag, "%w", err)
		}
	}
	if c.logFormat != "text" && c.logFormat != "json" {
		wrong("log-format", "%q is neither text nor json", c.logFormat)
	}
	if c.verbosity < 0 {
		wrong("v", "%d: can't be negative", c.verbosity)
	}
	return errors.Join(errs...)
}

func (c *config) options(log logr.Logger) controllers.ClusterOptions {
	o := controllers.ClusterOptions{
		AgentNamespace:          c.agentNamespace,
		WritesPerSecond:         c.writesPerSecond,
		WriteBurst:              c.writeBurst,
		HealthAddr:              c.healthAddress,
		MetricsAddr:             c.metricsAddress,
		LeaderElection:          c.leaderElect,
		LeaderElectionNamespace: c.leaderElectionNamespace,
		Log:                     log,
	}
	if o.LeaderElectionNamespace == "" {
		o.LeaderElectionNamespace = c.agentNamespace
	}
	return o
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

func (c *config) logger(w io.Writer) logr.Logger {
	options := &slog.HandlerOptions{Level: slog.Level(-c.verbosity)}
	if c.logFormat == "json" {
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options))
	}
	return logr.FromSlogHandler(slog.NewTextHandler(w, options))
}
