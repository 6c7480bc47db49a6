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
		"nothing":          {nil, []string{"--node-name", "NODE_NAME", "--namespace", "POD_NAMESPACE"}},
		"fabric":           {[]string{"--fabric=real"}, []string{`--fabric: "real"`, "kernel", "simulated"}},
		"cri not a socket": {[]string{"--cri-endpoint=tcp://127.0.0.1:1"}, []string{"--cri-endpoint", "unix://"}},
		"no cri":           {[]string{"--cri-endpoint="}, []string{"--cri-endpoint"}},
		"nri relative":     {[]string{"--nri-socket=nri.sock"}, []string{"--nri-socket", "absolute"}},
		"health":           {[]string{"--health-address=8081"}, []string{"--health-address", "8081"}},
		"metrics":          {[]string{"--metrics-address=localhost"}, []string{"--metrics-address"}},
		"limits":           {[]string{"--max-memberships-per-pod=0", "--max-memberships-per-node=-1"}, []string{"--max-memberships-per-pod", "--max-memberships-per-node"}},
		"lease":            {[]string{"--lease-duration=1s"}, []string{"--lease-duration"}},
		"gather":           {[]string{"--gather-interval=0s"}, []string{"--gather-interval"}},
		"log":              {[]string{"--log-format=xml"}, []string{"--log-format"}},
		"self-test":        {[]string{"--self-test-group=10.0.0.1"}, []string{"--self-test-group", "10.0.0.1"}},
		"argument":         {[]string{"node-1"}, []string{`"node-1"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := func(string) string { return "" }
			if name != "nothing" {
				env = environment
			}
			_, err := parse(tt.args, env, io.Discard, io.Discard)
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
	c, err := parse([]string{"--nri-socket=", "--namespace", "other"}, environment, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.nodeName != "of NODE_NAME" || c.namespace != "other" || c.nriSocket != "" || c.fabric != fabricKernel {
		t.Errorf("parsed %+v", c)
	}
	if g, err := c.scratchGroup(); err != nil || g.String() != defaultSelfTestGroup {
		t.Errorf("scratch group is %v, %v", g, err)
	}
	if c, err := parse([]string{"--self-test-group="}, environment, io.Discard, io.Discard); err != nil || c.selfTestGroup != "" {
		t.Errorf("without a self-test: %+v, %v", c, err)
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, environment, io.Discard, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help gives %v", err)
	}
	for _, f := range []string{"-node-name", "-cri-endpoint", "-nri-socket", "-fabric", "-kubeconfig"} {
		if !strings.Contains(help.String(), f) {
			t.Errorf("--help doesn't name %s", f)
		}
	}
}

func environment(name string) string { return "of " + name }
