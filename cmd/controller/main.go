// Command controller is the cluster's side: it accepts MulticastGroups, sums up
// their nodes, and lets a deleted group go once every node has left it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rdma-multicast/rdma-multicast/controllers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

// run is the whole program but for signals and the exit code.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	c, err := parse(args, os.Getenv, stderr)
	if err != nil {
		return err
	}
	log := c.logger(stderr)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	cfg, err := c.restConfig()
	if err != nil {
		return err
	}
	mgr, err := controllers.NewClusterManager(cfg, c.options(log))
	if err != nil {
		return err
	}
	log.Info("controller starts", "agentNamespace", c.agentNamespace, "leaderElection", c.leaderElect)
	return mgr.Start(ctx)
}
