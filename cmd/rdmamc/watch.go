package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// watchRequest is what "rdmamc watch" was asked for.
type watchRequest struct {
	common
	groups   []netip.Addr
	mgids    []netip.Addr
	link     string // of the groups; "": every interface
	interval time.Duration
}

// maxWatched bounds how many groups "rdmamc watch" joins.
const maxWatched = 256

func parseWatch(args []string, stderr io.Writer) (watchRequest, error) {
	r := watchRequest{common: newFlags("watch", stderr)}
	groups := r.StringSliceP("group", "g", nil, "join this group, show what becomes of it, and join it again when it is lost")
	mgids := r.StringSlice("mgid", nil, "likewise a verbatim MGID (on InfiniBand)")
	link := r.String("interface", "", "join on this interface only")
	interval := r.Duration("interval", time.Second, "how often to look at the groups' users, which the kernel doesn't tell")
	if err := r.parse(args); err != nil {
		return r, err
	}
	if err := r.noArguments("watch"); err != nil {
		return r, err
	}
	for _, list := range []struct {
		texts []string
		mgid  bool
		to    *[]netip.Addr
	}{{*groups, false, &r.groups}, {*mgids, true, &r.mgids}} {
		for _, text := range list.texts {
			group, err := parseGroup(text, list.mgid)
			if err != nil {
				return r, err
			}
			*list.to = append(*list.to, group)
		}
	}
	r.link, r.interval = *link, *interval
	switch {
	case len(r.groups)+len(r.mgids) > maxWatched:
		return r, fmt.Errorf("%w: at most %d groups can be joined", errUsage, maxWatched)
	case r.interval < 10*time.Millisecond:
		return r, fmt.Errorf("%w: --interval has to be 10ms or more", errUsage)
	case r.link != "" && len(r.groups)+len(r.mgids) == 0:
		return r, fmt.Errorf("%w: --interface is for the groups of -g and --mgid", errUsage)
	}
	return r, nil
}

func watch(ctx context.Context, args []string, host *rdma.Host, stdout, stderr io.Writer) (err error) {
	r, err := parseWatch(args, stderr)
	if err != nil {
		return err
	}
	ns, err := r.openNetNS(host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNetNS(ns)) }()
	watch, err := host.WatchInterfaces(ns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, watch.Close()) }()
	own, err := newMembers(ctx, host, ns, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	f := follower{host: host, ns: ns, own: own, show: printer(stdout, *r.output), stdout: stdout, stderr: stderr}
	return f.run(ctx, watch, r.interval)
}

// follower shows what there is, and then what changes.
type follower struct {
	host   *rdma.Host
	ns     *rdma.NetNS
	own    *members
	show   func(change) error
	stdout io.Writer
	stderr io.Writer

	before  snapshot
	trouble string // that was told
}

// run goes on until ctx ends, or nobody reads any more. Listing takes at most half of the time: a storm
// of changes is shown as one.
func (f *follower) run(ctx context.Context, watch *rdma.Watch, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		begin := time.Now()
		if err := f.look(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Since(begin)):
		}
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-watch.Changed():
			if !open {
				return watch.Err()
			}
		case <-ticker.C:
			if readerGone(f.stdout) {
				return nil
			}
			f.own.retry()
		case event, open := <-f.own.events:
			if !open {
				return f.own.err
			}
			f.own.take(event)
		}
	}
}

// look shows what has changed. What goes while it is being listed can fail the
// listing: after the first one that is told, once, and it is looked again.
func (f *follower) look() error {
	now, err := take(f.host, f.ns)
	if err != nil {
		if f.before == nil {
			return err
		}
		if text := err.Error(); text != f.trouble {
			f.trouble = text
			fmt.Fprintf(f.stderr, "rdmamc: %s\n", text)
		}
		return nil
	}
	f.trouble = ""
	f.own.add(now)
	for _, c := range diff(f.before, now) {
		if err := f.show(c); err != nil {
			return err
		}
	}
	f.before = now
	return nil
}

// lineJSON is a change as a line of JSON.
type lineJSON struct {
	Time   time.Time         `json:"time"`
	Change string            `json:"change"`
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Fields map[string]string `json:"fields,omitempty"`
	Was    map[string]string `json:"was,omitempty"`
}

// printer shows changes, each in one write.
func printer(w io.Writer, output string) func(change) error {
	return func(c change) error {
		now := time.Now()
		if output == "json" {
			line, err := json.Marshal(lineJSON{now.UTC(), c.what, c.key.kind.String(), c.key.name, asMap(c.now), asMap(c.was)})
			if err != nil {
				return err
			}
			_, err = w.Write(append(line, '\n'))
			return err
		}
		_, err := io.WriteString(w, lineText(now, c))
		return err
	}
}

func asMap(fields []field) map[string]string {
	out := map[string]string{}
	for _, f := range fields {
		out[f.name] = f.value
	}
	return out
}

func lineText(now time.Time, c change) string {
	words := []string{now.Format("15:04:05.000"), fmt.Sprintf("%-7s", c.what), fmt.Sprintf("%-10s", c.key.kind), c.key.name}
	for _, f := range c.now {
		words = append(words, f.name+"="+f.value)
	}
	for i, f := range c.was {
		if i == 0 {
			words = append(words, "was")
		}
		words = append(words, f.name+"="+f.value)
	}
	return strings.TrimRight(strings.Join(words, " "), " ") + "\n"
}
