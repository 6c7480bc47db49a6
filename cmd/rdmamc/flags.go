package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/spf13/pflag"
)

// common are the flags that every command has.
type common struct {
	*pflag.FlagSet
	output, netns *string
}

// newFlags is the flag set of a command.
func newFlags(name string, stderr io.Writer) common {
	flags := pflag.NewFlagSet("rdmamc "+name, pflag.ContinueOnError)
	flags.SetOutput(stderr)
	return common{
		FlagSet: flags,
		output:  flags.StringP("output", "o", "table", "table or json"),
		netns:   flags.String("netns", "", "network namespace: a path, or a process ID"),
	}
}

// parse parses a command's flags; any error but ErrHelp is one of usage.
func (f common) parse(args []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if *f.output != "table" && *f.output != "json" {
		return fmt.Errorf("%w: --output is table or json, not %q", errUsage, *f.output)
	}
	return nil
}

// noArguments is for commands that take flags alone.
func (f common) noArguments(command string) error {
	if f.NArg() > 0 {
		return fmt.Errorf("%w: %s takes no argument, got %q", errUsage, command, f.Arg(0))
	}
	return nil
}

// openNetNS opens the namespace that was asked for; nil where none was, which
// can be closed like any other.
func (f common) openNetNS(host *rdma.Host) (*rdma.NetNS, error) {
	return openNetNS(host, namespacePath(*f.netns))
}

func openNetNS(host *rdma.Host, path string) (*rdma.NetNS, error) {
	if path == "" {
		return nil, nil
	}
	return host.OpenNetNS(path)
}

// closeNetNS closes what openNetNS opened.
func closeNetNS(ns *rdma.NetNS) error {
	if ns == nil {
		return nil
	}
	return ns.Close()
}

// namespacePath is the path of a namespace that may be given by a process ID.
func namespacePath(s string) string {
	if _, err := strconv.ParseUint(s, 10, 32); err == nil {
		return "/proc/" + s + "/ns/net"
	}
	return s
}

// parseGroup reads a group's address, or a verbatim MGID.
func parseGroup(s string, mgid bool) (netip.Addr, error) {
	group, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%w: %w", errUsage, err)
	case mgid && (!group.Is6() || !group.IsMulticast() || group.Is4In6()):
		return netip.Addr{}, fmt.Errorf("%w: %v is not a multicast GID", errUsage, group)
	case !group.IsMulticast():
		return netip.Addr{}, fmt.Errorf("%w: %v is not a multicast address", errUsage, group)
	case group.Is4In6() || group.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%w: %v: an IPv4 group is written as such, and no group has a zone", errUsage, group)
	}
	return group, nil
}

// parsePortSpace reads a port space.
func parsePortSpace(s string) (rdma.PortSpace, error) {
	switch strings.ToUpper(s) {
	case "UDP":
		return rdma.PortSpaceUDP, nil
	case "IPOIB":
		return rdma.PortSpaceIPoIB, nil
	}
	return 0, fmt.Errorf("%w: --port-space is UDP or IPoIB, not %q", errUsage, s)
}
