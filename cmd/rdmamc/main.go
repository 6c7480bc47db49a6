// Command rdmamc lists a node's RDMA devices and joins multicast groups by
// hand, for looking into a node: what mckey does, without a queue pair.
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

const usage = `rdmamc lists RDMA devices and joins RDMA multicast groups by hand.

  rdmamc devices [-o json]
      lists the RDMA devices of this machine.
  rdmamc join ADDR --interface IF [flags]
      joins the group ADDR on an interface and holds the membership until it is
      interrupted (SIGINT, SIGTERM); then it leaves.

Exit codes: 0 done, 1 failed, 2 wrong usage.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	case err == nil, errors.Is(err, pflag.ErrHelp):
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
	case "help", "-h", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return fmt.Errorf("%w: no command %q", errUsage, args[0])
}

// newFlags is the flag set of a command, with -o.
func newFlags(name string, stderr io.Writer) (*pflag.FlagSet, *string) {
	flags := pflag.NewFlagSet("rdmamc "+name, pflag.ContinueOnError)
	flags.SetOutput(stderr)
	output := flags.StringP("output", "o", "table", "table or json")
	return flags, output
}

// parse parses a command's flags; any error but ErrHelp is one of usage.
func parse(flags *pflag.FlagSet, args []string, output *string) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if *output != "table" && *output != "json" {
		return fmt.Errorf("%w: --output is table or json, not %q", errUsage, *output)
	}
	return nil
}
