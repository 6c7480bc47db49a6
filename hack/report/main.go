// Command report reads the JSON of test runs (go test -json, or test2json) and
// prints one line for each scenario of a checked-in list: its name, ok, failed
// or not run, and its seconds. It ends with status 1 unless every scenario of the list
// ran and passed and nothing else failed, so that a suite that ran nothing, or
// not to its end, is a failure.
//
//	report -list test/e2e/scenarios.txt results.json...
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	list := flag.String("list", "", "file with one scenario per line: the full name of a test; # starts a comment")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: report -list FILE RESULTS.json...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *list == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, list string, results []string) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	wanted, err := scenarios(f)
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	seen := map[string]verdict{}
	for _, path := range results {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = read(f, seen)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return report(out, wanted, seen)
}

// scenarios are the names in a list.
func scenarios(r io.Reader) ([]string, error) {
	var names []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		name := strings.TrimSpace(line)
		switch {
		case name == "":
		case slices.Contains(names, name):
			return nil, fmt.Errorf("%s is listed twice", name)
		default:
			names = append(names, name)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("no scenario in it")
	}
	return names, nil
}

// verdict is how a test ended: the last word of go test on it.
type verdict struct {
	action  string // pass, fail, skip; run: it didn't end
	seconds float64
}

// event is one line of go test -json.
type event struct {
	Action  string
	Test    string
	Elapsed float64
}

// read adds the tests of one run.
func read(r io.Reader, seen map[string]verdict) error {
	decoder := json.NewDecoder(r)
	for {
		var e event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch e.Action {
		case "run", "pass", "fail", "skip":
			if e.Test != "" {
				seen[e.Test] = verdict{e.Action, e.Elapsed}
			}
		}
	}
}

// report prints a line for each scenario.
func report(out io.Writer, wanted []string, seen map[string]verdict) error {
	width := 0
	for _, name := range wanted {
		width = max(width, len(name))
	}
	bad := 0
	for _, name := range wanted {
		v, ran := seen[name]
		word := "ok"
		switch {
		case !ran || v.action == "skip":
			word = "not run"
		case v.action == "run":
			word = "not ended"
		case v.action == "fail":
			word = "failed"
		}
		if word != "ok" {
			bad++
		}
		fmt.Fprintf(out, "%-*s  %-9s %7.1f s\n", width, name, word, v.seconds)
	}
	// A failure outside of the scenarios, such as that of what they share.
	for name, v := range seen {
		if v.action != "pass" && !covered(name, wanted) {
			bad++
			fmt.Fprintf(out, "%s is not in the list, and ended with %s\n", name, v.action)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d scenarios or their surroundings not ok", bad, len(wanted))
	}
	fmt.Fprintf(out, "all %d scenarios ok\n", len(wanted))
	return nil
}

// covered: is a test one of the scenarios, a part of one, or what holds one?
func covered(name string, wanted []string) bool {
	return slices.ContainsFunc(wanted, func(scenario string) bool {
		return name == scenario || strings.HasPrefix(name, scenario+"/")
	})
}
