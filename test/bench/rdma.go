package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// roundTrips compares join, event and leave through package rdma with the same
// loop on librdmacm.
func roundTrips(ctx context.Context, s *settings, _ *world) ([]row, error) {
	addr, err := parentAddr()
	if err != nil {
		return nil, err
	}
	loop, closeLoop, err := newTripper(addr)
	if err != nil {
		return nil, err
	}
	defer closeLoop()
	var ours, theirs []time.Duration
	var allocs float64
	for range s.repeats {
		reference, err := s.runReference(ctx, "loop", addr.String(), groupAddr(0).String(), strconv.Itoa(s.trips))
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, reference)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		for range s.trips {
			if err := loop(ctx); err != nil {
				return nil, err
			}
		}
		ours = append(ours, time.Since(start))
		runtime.ReadMemStats(&after)
		allocs = float64(after.Mallocs-before.Mallocs) / float64(s.trips)
	}
	per := func(all []time.Duration) float64 {
		return float64(median(all)) / float64(s.trips) / float64(time.Microsecond)
	}
	return []row{
		newRow("join, event and leave, of librdmacm's", per(ours), per(theirs), "µs", 1.0),
		newRow("allocations of one join, event and leave", allocs, 0, "", 0),
	}, nil
}

// newTripper gives a function that joins, takes the event, and leaves.
func newTripper(addr netip.Addr) (trip func(context.Context) error, end func(), err error) {
	channel, err := rdma.Local().OpenChannel()
	if err != nil {
		return nil, nil, err
	}
	id, err := channel.NewID(nil, rdma.PortSpaceUDP)
	if err == nil {
		err = id.Bind(addr)
	}
	if err != nil {
		return nil, nil, errors.Join(err, channel.Close())
	}
	group := groupAddr(0)
	return func(ctx context.Context) error {
		if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
			return err
		}
		event, err := channel.Next(ctx)
		if err != nil {
			return err
		}
		if event.Type != rdma.MulticastJoined {
			return fmt.Errorf("event %v: %w", event.Type, event.Err)
		}
		return id.Leave(group)
	}, func() { _ = channel.Close() }, nil // the figures are taken
}

// parentAddr is the RDMA interface's own address.
func parentAddr() (netip.Addr, error) {
	interfaces, err := rdma.Local().Interfaces(nil)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, i := range interfaces {
		if i.Name == parent {
			return i.Addrs[0].Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no RDMA interface %s", parent)
}

// manyMemberships compares what the agent's table takes for all memberships of
// a full node, from nothing, with the bare calls of the kernel.
func manyMemberships(ctx context.Context, s *settings, w *world) ([]row, error) {
	wanted, err := s.wanted(w)
	if err != nil {
		return nil, err
	}
	var ours, theirs []time.Duration
	for range s.repeats {
		reference, err := s.runReference(ctx, "many", pattern, strconv.Itoa(w.count), strconv.Itoa(s.groups))
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, reference)
		took, err := fill(ctx, wanted, func() error {
			if n, err := w.members(s.groups); err != nil || n != len(wanted) {
				return fmt.Errorf("the kernel has %d memberships, want %d (%w)", n, len(wanted), err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		ours = append(ours, took)
		fmt.Fprintf(os.Stderr, "    %d memberships: %v, bare calls %v\n", len(wanted), took.Round(time.Millisecond), reference.Round(time.Millisecond))
	}
	return []row{newRow(fmt.Sprintf("%d memberships from nothing, of the bare calls'", len(wanted)),
		milliseconds(median(ours)), milliseconds(median(theirs)), "ms", 1.5)}, nil
}

// wanted is what Plan would give.
func (s *settings) wanted(w *world) ([]membership.Wanted, error) {
	host := rdma.Local()
	var wanted []membership.Wanted
	for n := range w.count {
		ns, err := host.OpenNetNS(nsPath(n))
		if err != nil {
			return nil, err
		}
		interfaces, err := host.Interfaces(ns)
		if err = errors.Join(err, ns.Close()); err != nil {
			return nil, err
		}
		if len(interfaces) != 1 {
			return nil, fmt.Errorf("%d RDMA interfaces in namespace %d, want one", len(interfaces), n)
		}
		i := interfaces[0]
		for g := range s.groups {
			wanted = append(wanted, membership.Wanted{
				Key:      membership.Key{Scope: "sandbox" + strconv.Itoa(n), Interface: i.Name, PortSpace: rdma.PortSpaceUDP, Address: groupAddr(g)},
				GroupUID: strconv.Itoa(g), GroupNamespace: "bench", GroupName: "g" + strconv.Itoa(g), Generation: 1,
				NetNS: nsPath(n), BindAddr: podAddr(n), Index: i.Index, Device: i.Device, Port: i.Port,
				Holders: []string{strconv.Itoa(n)},
			})
		}
	}
	return wanted, nil
}

// announced is a cluster that needs no announcement.
type announced struct{}

func (announced) Begin(context.Context, string, string, string, int64) error { return nil }
func (announced) End(context.Context, string) error                          { return nil }

// fill runs a table until all that is wanted is joined, and returns how long it
// took; then it checks, and ends the table, by which the kernel leaves.
func fill(ctx context.Context, wanted []membership.Wanted, check func() error) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1)
	start := time.Now()
	table := membership.NewTable(membership.TableOptions{Host: rdma.Local(), Protocol: announced{}, Changed: func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	done := make(chan error, 1)
	go func() { done <- table.Run(ctx) }()
	table.Apply(wanted)
	deadline := time.After(2 * time.Minute)
	for countJoined(table.Snapshot()) < len(wanted) {
		select {
		case <-changed: // as the agent looks
		case err := <-done:
			return 0, fmt.Errorf("the table ended: %w", err)
		case <-deadline:
			return 0, fmt.Errorf("not joined after 2 minutes: %s", states(table.Snapshot()))
		}
	}
	took := time.Since(start)
	err := check()
	cancel()
	return took, errors.Join(err, <-done)
}

func countJoined(all []membership.Status) int {
	n := 0
	for i := range all {
		if all[i].State == membership.Joined {
			n++
		}
	}
	return n
}

// states counts memberships by state, with one of the messages of each.
func states(all []membership.Status) string {
	counts, messages := map[membership.State]int{}, map[membership.State]string{}
	for i := range all {
		counts[all[i].State]++
		messages[all[i].State] = all[i].Message
	}
	return fmt.Sprintf("%v, %q", counts, messages)
}
