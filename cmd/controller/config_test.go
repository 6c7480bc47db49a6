package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

func TestParseNamesTheFlagThatIsWrong(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no namespace": {[]string{"--agent-namespace="}, []string{"--agent-namespace", "POD_NAMESPACE"}},
		"rate":         {[]string{"--status-writes-per-second=0"}, []string{"--status-writes-per-second"}},
		"no number":    {[]string{"--status-writes-per-second=NaN"}, []string{"--status-writes-per-second"}},
		"burst":        {[]string{"--status-write-burst=0"}, []string{"--status-write-burst"}},
		"both":         {[]string{"--health-address=8081", "--metrics-address=localhost"}, []string{"--health-address", "--metrics-address"}},
		"log":          {[]string{"--log-format=xml", "--v=-1"}, []string{"--log-format", "--v"}},
		"argument":     {[]string{"now"}, []string{`"now"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tt.args, environment, io.Discard)
			if err == nil {
				t.Fatalf("parse(%q) succeeded", tt.args)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("parse(%q) = %q: want it to name %s", tt.args, err, want)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	c, err := parse([]string{"--leader-elect", "--status-writes-per-second=0.5"}, environment, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o := c.options(c.logger(io.Discard))
	if o.AgentNamespace != "of POD_NAMESPACE" || o.LeaderElectionNamespace != "of POD_NAMESPACE" || !o.LeaderElection || o.WritesPerSecond != 0.5 {
		t.Errorf("options are %+v", o)
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, environment, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help gives %v", err)
	}
	for _, f := range []string{"-kubeconfig", "-agent-namespace", "-leader-elect", "-status-writes-per-second"} {
		if !strings.Contains(help.String(), f) {
			t.Errorf("--help doesn't name %s", f)
		}
	}
}

// A controller outside of a cluster has to be told where the API server is.
func TestNoKubeconfigIsNamed(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	err := run(t.Context(), []string{"--agent-namespace=ns"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("run = %v: want it to name --kubeconfig", err)
	}
}

func environment(name string) string { return "of " + name }
