package cli

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"runtime/debug"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		args           []string
		stdout, stderr string
		err            error
		message        string
	}{
		"nothing":  {},
		"flags":    {args: []string{"--own=x", "--v=2"}},
		"help":     {args: []string{"--help"}, stderr: "-own", err: flag.ErrHelp},
		"version":  {args: []string{"--version"}, stdout: "program ", err: ErrVersion},
		"unknown":  {args: []string{"--nosuch"}, stderr: "nosuch", message: "nosuch"},
		"argument": {args: []string{"now"}, message: `"now"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			var own string
			err := (&Flags{}).Parse("program", tt.args, &stdout, &stderr, func(f *flag.FlagSet) { f.StringVar(&own, "own", "", "the program's") })
			switch {
			case tt.err != nil && !errors.Is(err, tt.err), tt.err == nil && (err != nil) != (tt.message != ""):
				t.Errorf("error is %v", err)
			case tt.message != "" && !strings.Contains(err.Error(), tt.message):
				t.Errorf("error is %v: want %s named", err, tt.message)
			}
			if !strings.HasPrefix(stdout.String(), tt.stdout) || (tt.stdout == "") != (stdout.Len() == 0) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
			}
			if name == "flags" && own != "x" {
				t.Errorf("the program's own flag is %q", own)
			}
		})
	}
}

func TestValidateNamesEachFlag(t *testing.T) {
	var w Wrong
	(&Flags{HealthAddress: "8081", MetricsAddress: "localhost", LogFormat: "xml", Verbosity: -1}).Validate(&w)
	err := w.Err()
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, name := range []string{"--health-address", "--metrics-address", "--log-format", "--v"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v: want %s named", err, name)
		}
	}
	var none Wrong
	(&Flags{HealthAddress: "0", MetricsAddress: ":1", LogFormat: "json"}).Validate(&none)
	if none.Err() != nil {
		t.Error(none.Err())
	}
}

func TestVersionNamesTheCommit(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26", Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}
	if v := version(info); v != "(devel), commit abc, modified, go1.26" {
		t.Errorf("version is %q", v)
	}
	info.Main.Version, info.Settings = "v1.2.3", nil
	if v := version(info); v != "v1.2.3, go1.26" {
		t.Errorf("version is %q", v)
	}
}

func TestLogHasItsFormat(t *testing.T) {
	var text, json bytes.Buffer
	(&Flags{LogFormat: "text"}).logger(&text).Info("hello", "n", 1)
	(&Flags{LogFormat: "json"}).logger(&json).Info("hello", "n", 1)
	if !strings.Contains(text.String(), "msg=hello n=1") || !strings.Contains(json.String(), `"msg":"hello","n":1`) {
		t.Errorf("text %q, json %q", text.String(), json.String())
	}
	(&Flags{LogFormat: "text"}).logger(io.Discard).V(1).Info("not shown")
}

// A program outside of a cluster has to be told where the API server is.
func TestNoKubeconfigIsNamed(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []Flags{{}, {Kubeconfig: "/nosuch"}} {
		if _, err := c.RESTConfig(); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
			t.Errorf("RESTConfig = %v: want it to name --kubeconfig", err)
		}
	}
}
