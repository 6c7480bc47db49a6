// Command controller is the cluster's side: it accepts MulticastGroups, sums up
// their nodes, and lets a deleted group go once every node has left it.
package main

import (
	"context"
	"io"
	"os"

	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/internal/cli"
)

func main() { cli.Main("controller", run) }

// run is the whole program but for signals and the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, os.Getenv, stdout, stderr)
	if err != nil {
		return err
	}
	log := c.SetLog(stderr)
	cfg, err := c.RESTConfig()
	if err != nil {
		return err
	}
	mgr, err := controllers.NewClusterManager(cfg, c.options(log))
	if err != nil {
		return err
	}
	log.Info("controller starts", "version", cli.Version(), "agentNamespace", c.agentNamespace, "leaderElection", c.leaderElect)
	return mgr.Start(ctx)
}
