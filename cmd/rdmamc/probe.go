package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// scratchGroup is one that nobody uses: of the administratively scoped block,
// which stays within a site (RFC 2365).
const scratchGroup = "239.255.255.240"

type problemJSON struct {
	Reason    string `json:"reason"`
	Device    string `json:"device,omitempty"`
	Port      int    `json:"port,omitempty"`
	Interface string `json:"interface,omitempty"`
	Temporary bool   `json:"temporary"`
	Message   string `json:"message"`
}

// errProblems: the command did its work, and found something.
var errProblems = errors.New("multicast doesn't work everywhere")

func probe(ctx context.Context, args []string, host *rdma.Host, stdout, stderr io.Writer) (err error) {
	flags := newFlags("probe", stderr)
	link := flags.String("interface", "", "try multicast out on this interface")
	scratch := flags.String("group", scratchGroup, "the scratch group to join; nothing else may use it, or the one beside it")
	timeout := flags.Duration("timeout", 30*time.Second, "how long trying out may take")
	if err := flags.parse(args); err != nil {
		return err
	}
	if err := flags.noArguments("probe"); err != nil {
		return err
	}
	group, err := parseGroup(*scratch, false)
	if err != nil {
		return err
	}
	if *timeout <= 0 {
		return fmt.Errorf("%w: --timeout has to be positive", errUsage)
	}
	ns, err := flags.openNetNS(host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNetNS(ns)) }()
	problems, err := host.Probe(ns)
	if err != nil {
		return err
	}
	if *link != "" {
		limited, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		var found *rdma.Problem
		if errors.As(host.SelfTest(limited, ns, *link, group), &found) {
			problems = append(problems, found)
		}
		if ctx.Err() != nil {
			return nil // interrupted
		}
	}
	return showProblems(stdout, *flags.output, problems)
}

func showProblems(w io.Writer, output string, problems []*rdma.Problem) error {
	list := make([]problemJSON, 0, len(problems))
	t := table{header: []string{"REASON", "DEVICE", "PORT", "INTERFACE", "MESSAGE"}}
	for _, p := range problems {
		j := problemJSON{
			Reason: string(p.Reason), Device: p.Device, Port: p.Port, Interface: p.Interface,
			Temporary: p.Reason.Temporary(), Message: strings.TrimPrefix(p.Error(), "rdma: "),
		}
		port := ""
		if p.Port > 0 {
			port = strconv.Itoa(p.Port)
		}
		list = append(list, j)
		t.rows = append(t.rows, []string{j.Reason, orNone(j.Device), orNone(port), orNone(j.Interface), j.Message})
	}
	if len(problems) == 0 && output == "table" {
		_, err := fmt.Fprintln(w, "nothing found that keeps multicast from working")
		return err
	}
	if err := write(w, output, list, t); err != nil || len(problems) == 0 {
		return err
	}
	return errProblems
}
