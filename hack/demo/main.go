// Command demo shows on one machine what rdma-multicast is for, without RDMA
// hardware: it starts a real etcd and kube-apiserver, the controller, and four
// hollow nodes, one of them on InfiniBand, whose agents join and leave groups on
// one simulated fabric.
//
//	demo        plays the main job, from kubectl apply to the last leave, and
//	            ends with 0 only if each step was seen in the API and in the
//	            fabric's own tables
//	demo up     starts the same cluster in the background, for playing
//	demo down   ends it
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	bound := flags.Duration("bound", time.Minute, "how long one thing may take before its step has failed")
	size := clusterSize{}
	flags.IntVar(&size.nodes, "nodes", roceNodes+infiniBandNodes, "with up: number of hollow nodes")
	flags.IntVar(&size.infiniBand, "infiniband", infiniBandNodes, "with up: how many of them, the last ones, are on InfiniBand")
	logPath := flags.String("log", "", "file for the log of every part; default: a temporary one, kept only on failure")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: demo [flags] [up | down]\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	switch command := flags.Arg(0); command {
	case "":
		return play(ctx, *bound, *logPath)
	case "up":
		return up(ctx, size)
	case "down":
		return down(ctx)
	case "serve": // what up runs in the background
		return serve(ctx, size)
	default:
		flags.Usage()
		return fmt.Errorf("unknown command %q: want up, down, or none to play", command)
	}
}
