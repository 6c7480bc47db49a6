// Package leak fails a test binary that leaves descriptors or goroutines behind.
package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and ends the process: TestMain's whole body.
func Main(m *testing.M) {
	// The runtime's poller opens descriptors of its own on first use.
	r, w, err := os.Pipe()
	if err == nil {
		err = closeAll(r, w)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leak: open and close a pipe:", err)
		os.Exit(1)
	}
	before, err := descriptors()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leak: list open files:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		code = check(before)
	}
	os.Exit(code)
}

func check(before []string) int {
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "leak:", err)
		return 1
	}
	// A descriptor may still be on its way out of another thread's call.
	deadline := time.Now().Add(5 * time.Second)
	for {
		after, err := descriptors()
		if err != nil {
			fmt.Fprintln(os.Stderr, "leak: list open files:", err)
			return 1
		}
		if len(after) <= len(before) {
			return 0
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "leak: open files before the tests:\n  %s\nafter:\n  %s\n",
				strings.Join(before, "\n  "), strings.Join(after, "\n  "))
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// descriptors lists what the process has open.
func descriptors() ([]string, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var open []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // the one that listed the folder
		}
		open = append(open, e.Name()+" → "+target)
	}
	slices.Sort(open)
	return open, nil
}

func closeAll(files ...*os.File) error {
	for _, f := range files {
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
