package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	const list = "# what is played\nTestA/one\nTestA/two # and why\n\n"
	const onePasses = `{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/one"}
{"Action":"output","Test":"TestA/one","Output":"x"}
{"Action":"pass","Test":"TestA/one","Elapsed":1.25}
`
	const twoPasses = `{"Action":"run","Test":"TestA/two"}
{"Action":"pass","Test":"TestA/two","Elapsed":10}
`
	const end = `{"Action":"pass","Test":"TestA","Elapsed":12}
{"Action":"pass","Elapsed":12}
`
	for _, c := range []struct {
		name, list, results string
		out, err            string
	}{
		{
			name: "all pass", list: list, results: onePasses + twoPasses + end,
			out: "TestA/one  ok            1.2 s\nTestA/two  ok           10.0 s\nall 2 scenarios ok\n",
		},
		{
			name: "one didn't run", list: list, results: onePasses + end,
			out: "TestA/one  ok            1.2 s\nTestA/two  not run       0.0 s\n",
			err: "1 of 2 scenarios",
		},
		{
			name: "one is skipped", list: list,
			results: onePasses + `{"Action":"skip","Test":"TestA/two","Elapsed":0}` + end,
			out:     "TestA/one  ok            1.2 s\nTestA/two  not run       0.0 s\n",
			err:     "1 of 2 scenarios",
		},
		{
			name: "one fails", list: list,
			results: onePasses + `{"Action":"fail","Test":"TestA/two","Elapsed":3}` + end,
			out:     "TestA/one  ok            1.2 s\nTestA/two  failed        3.0 s\n",
			err:     "1 of 2 scenarios",
		},
		{
			name: "the machine died in the second", list: list,
			results: onePasses + `{"Action":"run","Test":"TestA/two"}`,
			out:     "TestA/one  ok            1.2 s\nTestA/two  not ended     0.0 s\nTestA is not in the list, and ended with run\n",
			err:     "2 of 2 scenarios",
		},
		{
			name: "nothing ran", list: list, results: "",
			out: "TestA/one  not run       0.0 s\nTestA/two  not run       0.0 s\n",
			err: "2 of 2 scenarios",
		},
		{
			name: "the surroundings fail", list: list,
			results: onePasses + twoPasses + `{"Action":"fail","Test":"TestA","Elapsed":12}`,
			out:     "TestA/one  ok            1.2 s\nTestA/two  ok           10.0 s\nTestA is not in the list, and ended with fail\n",
			err:     "1 of 2 scenarios",
		},
		{name: "empty list", list: "# nothing\n", results: end, err: "no scenario"},
		{name: "listed twice", list: "TestA\nTestA\n", results: end, err: "TestA is listed twice"},
		{name: "not JSON", list: list, results: "ok  	x	1s\n", err: "invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			var out strings.Builder
			err := run(&out, write("list", c.list), []string{write("results", c.results)})
			if diff := cmp.Diff(c.out, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			switch {
			case c.err == "" && err != nil:
				t.Errorf("error %v", err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		})
	}
}

func TestReportOfMissingFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct{ list, results string }{{missing, os.DevNull}, {"main.go", missing}} {
		if err := run(&strings.Builder{}, c.list, []string{c.results}); err == nil {
			t.Errorf("no error for list %s, results %s", c.list, c.results)
		}
	}
}
