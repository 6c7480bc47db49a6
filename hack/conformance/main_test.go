package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name                    string
		only, simulated, kernel string
		want                    string // in the error; "" none
	}{
		{"alike", "# a comment\nsimulated: c\nkernel: d\n", "a\nb\nc\n", "b\na\nd\na\n", ""},
		{"missing on the kernel", "", "a\nb\n", "a\n", `"b" ran on the simulated kernel alone`},
		{"missing on the simulation", "", "a\n", "a\nb\n", `"b" ran on the real kernel alone`},
		{"listed but not run", "kernel: b\n", "a\n", "a\n", `"b" is listed as kernel only: simulated false, kernel false`},
		{"listed for one, run on both", "simulated: b\n", "a\nb\n", "a\nb\n", `"b" is listed as simulated only`},
		{"nothing ran", "", "", "", "ran nothing"},
		{"listed wrongly", "both: a\n", "a\n", "a\n", "is not"},
		{"listed twice", "kernel: b\nsimulated: b\n", "a\n", "a\nb\n", "twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			var paths []string
			for name, text := range map[string]string{"1": tt.only, "2": tt.simulated, "3": tt.kernel} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"1", "2", "3"} {
				paths = append(paths, filepath.Join(dir, name))
			}
			var out bytes.Buffer
			err := run(paths[0], paths[1], paths[2], &out)
			if tt.want == "" {
				if err != nil || !strings.Contains(out.String(), "2 scenarios on both kernels, 2 on one") {
					t.Errorf("got output %q, error %v, want none", out.String(), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
	if err := run("missing", "missing", "missing", &bytes.Buffer{}); err == nil {
		t.Error("got no error for files that don't exist")
	}
}
