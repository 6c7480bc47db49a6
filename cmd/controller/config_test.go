package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/go-logr/logr"
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
			_, err := parse(tt.args, environment, io.Discard, io.Discard)
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
	c, err := parse([]string{"--leader-elect", "--status-writes-per-second=0.5"}, environment, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o := c.options(logr.Discard())
	if o.AgentNamespace != "of POD_NAMESPACE" || o.LeaderElectionNamespace != "of POD_NAMESPACE" || !o.LeaderElection || o.WritesPerSecond != 0.5 {
		t.Errorf("options are %+v", o)
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, environment, io.Discard, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help gives %v", err)
	}
	for _, f := range []string{"-kubeconfig", "-agent-namespace", "-leader-elect", "-status-writes-per-second"} {
		if !strings.Contains(help.String(), f) {
			t.Errorf("--help doesn't name %s", f)
		}
	}
}

func environment(name string) string { return "of " + name }
