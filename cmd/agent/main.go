// Command agent is the node agent: it joins the multicast groups that the pods
// of its node ask for, on their RDMA interfaces, and leaves them when they have
// ended. It runs once on each node.
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
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rdma-multicast/rdma-multicast/internal/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "agent:", err)
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
	options, err := c.options(log)
	if err != nil {
		return err
	}
	options.Metrics = metrics.Registry
	a, err := agent.New(options)
	if err != nil {
		return err
	}
	log.Info("agent starts", "node", options.NodeName, "fabric", c.fabric, "cri", options.CRIEndpoint, "nri", options.NRISocket)
	return a.Run(ctx)
}
