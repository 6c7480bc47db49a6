package main

import (
	"flag"
	"io"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/internal/cli"
)

// config is the command line.
type config struct {
	cli.Flags
	agentNamespace          string
	writesPerSecond         float64
	writeBurst              int
	leaderElect             bool
	leaderElectionNamespace string
}

func parse(args []string, getenv func(string) string, stdout, stderr io.Writer) (*config, error) {
	c := &config{}
	if err := c.Parse("controller", args, stdout, stderr, func(f *flag.FlagSet) { c.register(f, getenv) }); err != nil {
		return nil, err
	}
	return c, c.validate()
}

func (c *config) register(f *flag.FlagSet, getenv func(string) string) {
	f.StringVar(&c.agentNamespace, "agent-namespace", getenv("POD_NAMESPACE"), "`namespace` of the agents, where their Leases are (environment: POD_NAMESPACE)")
	f.Float64Var(&c.writesPerSecond, "status-writes-per-second", controllers.DefaultWritesPerSecond, "`number` of status writes a second, in the whole cluster, that only tell sums: each wakes every agent")
	f.IntVar(&c.writeBurst, "status-write-burst", controllers.DefaultWriteBurst, "`number` of such writes that may be made at once after a quiet time")
	f.BoolVar(&c.leaderElect, "leader-elect", false, "elect a leader; needed with more than one replica")
	f.StringVar(&c.leaderElectionNamespace, "leader-election-namespace", "", "`namespace` of the Lease that elects; empty: --agent-namespace")
}

// validate names the flags that are wrong, all of them.
func (c *config) validate() error {
	var w cli.Wrong
	c.Validate(&w)
	if c.agentNamespace == "" {
		w.Flag("agent-namespace", "missing: the namespace that the agents run in, or set POD_NAMESPACE")
	}
	if !(c.writesPerSecond > 0) {
		w.Flag("status-writes-per-second", "%g: must be positive", c.writesPerSecond)
	}
	if c.writeBurst < 1 {
		w.Flag("status-write-burst", "%d: at least 1", c.writeBurst)
	}
	return w.Err()
}

func (c *config) options(log logr.Logger) controllers.ClusterOptions {
	o := controllers.ClusterOptions{
		AgentNamespace:          c.agentNamespace,
		WritesPerSecond:         c.writesPerSecond,
		WriteBurst:              c.writeBurst,
		HealthAddr:              c.HealthAddress,
		MetricsAddr:             c.MetricsAddress,
		LeaderElection:          c.leaderElect,
		LeaderElectionNamespace: c.leaderElectionNamespace,
		Log:                     log,
	}
	if o.LeaderElectionNamespace == "" {
		o.LeaderElectionNamespace = c.agentNamespace
	}
	return o
}
