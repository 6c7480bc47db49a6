// Command conformance compares the scenarios that ran against the simulated
// kernel with those that ran against a real one, and with the reviewed list of
// what only one of them can do. It fails unless every scenario ran on both, or
// on the one that the list says.
//
//	CONFORMANCE_OUT=simulated.txt go test ./rdma/rdmatest
//	CONFORMANCE_OUT=kernel.txt    go test -tags realkernel -exec hack/vm/run ./rdma/realkernel
//	go run ./hack/conformance -only hack/conformance/only.txt simulated.txt kernel.txt
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	only := flag.String("only", "", "the reviewed list of what runs on one side alone")
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: conformance -only LIST SIMULATED KERNEL") }
	flag.Parse()
	if *only == "" || flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*only, flag.Arg(0), flag.Arg(1), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(onlyPath, simulatedPath, kernelPath string, out io.Writer) error {
	listed, err := read(onlyPath)
	if err != nil {
		return err
	}
	only, err := parseOnly(listed)
	if err != nil {
		return fmt.Errorf("%s: %w", onlyPath, err)
	}
	simulated, err := read(simulatedPath)
	if err != nil {
		return err
	}
	kernel, err := read(kernelPath)
	if err != nil {
		return err
	}
	if complaints := compare(only, simulated, kernel); len(complaints) > 0 {
		return fmt.Errorf("%d differences:\n  %s", len(complaints), strings.Join(complaints, "\n  "))
	}
	_, err = fmt.Fprintf(out, "conformance: %d scenarios on both kernels, %d on one of them as listed\n",
		shared(simulated, kernel), len(only))
	return err
}

// The two sides.
const (
	onSimulated = "simulated"
	onKernel    = "kernel"
)

// read gives the lines of a file that are neither empty nor comments.
func read(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// parseOnly reads "SIDE: NAME" lines.
func parseOnly(lines []string) (map[string]string, error) {
	only := map[string]string{}
	for _, line := range lines {
		side, name, ok := strings.Cut(line, ": ")
		if !ok || (side != onSimulated && side != onKernel) {
			return nil, fmt.Errorf("line %q is not %q or %q, a colon and a scenario", line, onSimulated, onKernel)
		}
		if only[name] != "" {
			return nil, fmt.Errorf("scenario %q is listed twice", name)
		}
		only[name] = side
	}
	return only, nil
}

// compare says what ran where it shouldn't, or didn't where it should.
func compare(only map[string]string, simulated, kernel []string) []string {
	var complaints []string
	names := slices.Concat(simulated, kernel)
	for name := range only {
		names = append(names, name)
	}
	for _, name := range unique(names) {
		onSim, onReal := slices.Contains(simulated, name), slices.Contains(kernel, name)
		switch only[name] {
		case "":
			if !onSim {
				complaints = append(complaints, fmt.Sprintf("%q ran on the real kernel alone, and isn't listed", name))
			}
			if !onReal {
				complaints = append(complaints, fmt.Sprintf("%q ran on the simulated kernel alone, and isn't listed", name))
			}
		case onSimulated:
			if !onSim || onReal {
				complaints = append(complaints, fmt.Sprintf("%q is listed as simulated only: simulated %v, kernel %v", name, onSim, onReal))
			}
		case onKernel:
			if onSim || !onReal {
				complaints = append(complaints, fmt.Sprintf("%q is listed as kernel only: simulated %v, kernel %v", name, onSim, onReal))
			}
		}
	}
	if len(simulated) == 0 || len(kernel) == 0 {
		complaints = append(complaints, "a side that ran nothing proves nothing")
	}
	return complaints
}

func unique(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// shared counts what ran on both sides.
func shared(a, b []string) int {
	n := 0
	for _, name := range unique(a) {
		if slices.Contains(b, name) {
			n++
		}
	}
	return n
}
