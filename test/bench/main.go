package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// settings are the flags.
type settings struct {
	reference  string // folder with the C programs of reference/
	programs   string // folder with agent and controller
	root       string // the checkout
	out        string // folder of the results and logs
	host       time.Duration
	namespaces int
	groups     int
	repeats    int
	trips      int
	idle       time.Duration
	only       string // the part to take; "": all
}

func main() {
	var s settings
	spinOnly := flag.Bool("spin", false, "only time the loop by which the emulated processor's slowness is divided out, print nanoseconds")
	flag.StringVar(&s.reference, "reference", "", "folder with the programs made of reference/")
	flag.StringVar(&s.programs, "programs", "", "folder with agent and controller")
	flag.StringVar(&s.root, "root", "", "the checkout")
	flag.StringVar(&s.out, "out", "", "folder for results and logs")
	flag.DurationVar(&s.host, "host-spin", 0, "what -spin took outside the virtual machine")
	flag.IntVar(&s.namespaces, "namespaces", 110, "network namespaces, as pods of one node; at most 2000")
	flag.IntVar(&s.groups, "groups", 16, "groups that each one is a member of; at most 250")
	flag.IntVar(&s.repeats, "repeats", 7, "interleaved repeats, whose medians are taken")
	flag.IntVar(&s.trips, "trips", 300, "round trips of join, event and leave in one repeat")
	flag.DurationVar(&s.idle, "idle", 60*time.Second, "how long the idle agent is watched")
	flag.StringVar(&s.only, "only", "", "take one part alone: trips, many or agent")
	flag.Parse()
	run := func() error { return s.run(context.Background()) }
	if *spinOnly {
		run = printSpin
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func printSpin() error {
	took, err := spin()
	if err == nil {
		fmt.Println(took.Nanoseconds())
	}
	return err
}

// run takes every figure, writes bench.json, and fails where one couldn't be
// taken. A goal that is missed is told in the table and is no failure: the
// machine may be slow in ways that the ratios don't know.
func (s *settings) run(ctx context.Context) error {
	if s.namespaces < 1 || s.namespaces > maxNamespaces || s.groups < 1 || s.groups > maxGroups || s.repeats < 1 || s.trips < 1 {
		return errors.New("a flag is out of range: see -help")
	}
	w, err := newWorld(s.namespaces)
	if err != nil {
		return fmt.Errorf("making network namespaces: %w", err)
	}
	var rows []row
	for _, part := range []struct {
		flag, name string
		take       func(context.Context, *settings, *world) ([]row, error)
	}{
		{"trips", "join, event and leave", roundTrips},
		{"many", "many memberships", manyMemberships},
		{"agent", "the agent", wholeAgent},
	} {
		if s.only != "" && s.only != part.flag {
			continue
		}
		start := time.Now()
		fmt.Fprintf(os.Stderr, "--- %s\n", part.name)
		got, err := part.take(ctx, s, w)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		rows = append(rows, got...)
		fmt.Fprintf(os.Stderr, "--- %s took %.0f s\n", part.name, time.Since(start).Seconds())
	}
	printTable(os.Stdout, rows)
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.out, "bench.json"), append(data, '\n'), 0o644)
}
