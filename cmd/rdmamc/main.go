// Command rdmamc lists and watches a node's RDMA devices, says what keeps
// multicast from working, and joins multicast groups by hand, for looking into a
// node: what mckey does, without a queue pair.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/spf13/pflag"
)

const usage = `rdmamc lists and watches RDMA devices and joins RDMA multicast groups by hand.

  rdmamc devices [-v] [--netns NS] [-o json]
      lists the RDMA devices of this machine; -v: with their GIDs and P_Keys.
  rdmamc join ADDR --interface IF [--mgid] [flags]
      joins the group ADDR on an interface and holds the membership until it is
      interrupted (SIGINT, SIGTERM); then it leaves. --mgid: ADDR is a verbatim
      MGID, on InfiniBand.
  rdmamc probe [--interface IF] [--netns NS] [-o json]
      says what keeps multicast from working; with an interface it tries that
      one out, by joining and leaving a scratch group.
  rdmamc watch [--netns NS] [-g ADDR]... [-o json]
      shows devices, ports, GIDs, interfaces and groups with their users, and each
      change, a line each, until it is interrupted. -g: joins a group too.

NS is the path of a network namespace, or the ID of a process in it. More flags:
rdmamc COMMAND --help. The version: rdmamc --version.

Exit codes: 0 done, 1 failed or found something, 2 wrong usage.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Whoever reads the output may go: then writing fails, instead of a signal
	// ending the process before it has left its groups.
	signal.Ignore(syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], rdma.Local(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errUsage is an error of the command line.
var errUsage = errors.New("wrong usage")

// run is the whole command; it ends when ctx does.
func run(ctx context.Context, args []string, host *rdma.Host, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, host, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp), errors.Is(err, syscall.EPIPE):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "rdmamc: %v\n\n%s", err, usage)
		return 2
	}
	fmt.Fprintf(stderr, "rdmamc: %v\n", err)
	return 1
}

func dispatch(ctx context.Context, args []string, host *rdma.Host, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: which command?", errUsage)
	}
	switch args[0] {
	case "devices":
		return devices(args[1:], host, stdout, stderr)
	case "join":
		return join(ctx, args[1:], host, stdout, stderr)
	case "probe":
		return probe(ctx, args[1:], host, stdout, stderr)
	case "watch":
		return watch(ctx, args[1:], host, stdout, stderr)
	case "version", "--version":
		_, err := fmt.Fprintln(stdout, version())
		return err
	case "help", "-h", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return fmt.Errorf("%w: no command %q", errUsage, args[0])
}
