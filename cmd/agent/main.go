// Command agent is the node agent: it joins the multicast groups that the pods
// of its node ask for, on their RDMA interfaces, and leaves them when they have
// ended. It runs once on each node.
package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rdma-multicast/rdma-multicast/internal/agent"
	"github.com/rdma-multicast/rdma-multicast/internal/cli"
)

// gcPercent is GOGC's where that isn't set: an agent's memory counts on every
// node and its processor time hardly, and a full node's joins make garbage for a
// moment, 9 MiB of which this saves.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cli.Main("agent", run)
}

// run is the whole program but for signals and the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, os.Getenv, stdout, stderr)
	if err != nil {
		return err
	}
	log := c.SetLog(stderr)
	options, err := c.options(log)
	if err != nil {
		return err
	}
	options.Metrics = metrics.Registry
	a, err := agent.New(options)
	if err != nil {
		return err
	}
	log.Info("agent starts", "version", cli.Version(), "node", options.NodeName, "fabric", c.fabric, "cri", options.CRIEndpoint, "nri", options.NRISocket)
	return a.Run(ctx)
}
