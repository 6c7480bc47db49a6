package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
)

func TestUpAndDown(t *testing.T) {
	program := build(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	s, err := openState()
	if err != nil {
		t.Fatal(err)
	}
	play := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("demo %v: %v\n%s", args, err, out)
		}
		return string(out)
	}

	if out := play("down"); !strings.Contains(out, "No cluster runs") {
		t.Errorf("down without a cluster says: %s", out)
	}
	first := play("-nodes", "2", "up")
	if !strings.Contains(first, "export KUBECONFIG="+s.kubeconfig()) || !strings.Contains(first, "kubectl is /") {
		t.Errorf("up says: %s", first)
	}
	defer play("down") // in case of an early end
	host := checkNodes(t, s.kubeconfig(), 2)
	if out := play("up"); out != "A cluster runs already.\n"+first {
		t.Errorf("a second up says: %s\nafter the first: %s", out, first)
	}
	if out := play("down"); !strings.Contains(out, "has ended") {
		t.Errorf("down says: %s", out)
	}
	checkGone(t, host)
	if _, err := os.Stat(s.kubeconfig()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig is left: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "pid")); err != nil || len(text) > 0 {
		t.Errorf("the process ID is left: %q, %v", text, err)
	}
}

func TestInterruptedDemoLeavesNothingBehind(t *testing.T) {
	program := build(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	cmd := exec.CommandContext(t.Context(), program)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	host := ""
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), "ok: step join") {
			continue
		}
		kubeconfigs, err := filepath.Glob(filepath.Join(tmp, "rdma-multicast-demo-*", "kubeconfig"))
		if err != nil || len(kubeconfigs) != 1 {
			t.Errorf("kubeconfigs %q, %v", kubeconfigs, err)
		} else {
			host = checkNodes(t, kubeconfigs[0], 4)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("it ended with %v, want exit code 1; it said:\n%s", err, stderr.String())
	}
	if got := stderr.String(); got != "demo: interrupted; everything has been ended\n" {
		t.Errorf("it said: %s", got)
	}
	if host == "" {
		t.Fatalf("the step join wasn't reached; it said:\n%s", stderr.String())
	}
	checkGone(t, host)
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %q, %v", left, err)
	}
}

func TestProtocolFollowed(t *testing.T) {
	const (
		node  = "/apis/rdma-multicast.dev/v1alpha1/multicastnodes/node-1/status"
		group = "/apis/rdma-multicast.dev/v1alpha1/namespaces/default/multicastgroups/late"
	)
	write := localcluster.APICall{Method: http.MethodPut, Path: node, Status: 200}
	conflict := localcluster.APICall{Method: http.MethodPut, Path: node, Status: 409}
	gone := localcluster.APICall{Method: http.MethodGet, Path: group, Status: 404}
	there := localcluster.APICall{Method: http.MethodGet, Path: group, Status: 200}
	other := localcluster.APICall{Method: http.MethodGet, Path: group + "r", Status: 404}
	for _, test := range []struct {
		name  string
		calls []localcluster.APICall
		want  string // "" followed
	}{
		{"nothing", nil, "no entry was written"},
		{"in order", []localcluster.APICall{write, gone, write}, ""},
		{"with a conflict", []localcluster.APICall{conflict, write, gone, conflict, write}, ""},
		{"read before the entry", []localcluster.APICall{gone, write}, "the group wasn't read"},
		{"not read", []localcluster.APICall{write, write}, "the group wasn't read"},
		{"another group read", []localcluster.APICall{write, other, write}, "the group wasn't read"},
		{"found", []localcluster.APICall{write, there, write}, "the group wasn't read"},
		{"not taken back", []localcluster.APICall{write, gone}, "wasn't taken back"},
		{"only a failed write", []localcluster.APICall{conflict, gone}, "no entry was written"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := protocolFollowed(test.calls, "node-1", "late")
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestEventually(t *testing.T) {
	d := &demo{bound: time.Minute}
	start := time.Now()
	err := d.eventually(t.Context(), "this", func(context.Context) error { return fmt.Errorf("%w: that", errNever) })
	if err == nil || err.Error() != "this: must not be: that" {
		t.Errorf("error %v", err)
	}
	if waited := time.Since(start); waited > d.bound/2 {
		t.Errorf("it waited %v for what mustn't be", waited)
	}
	d.bound = 2 * pollInterval
	looks := 0
	err = d.eventually(t.Context(), "this", func(context.Context) error { looks++; return fmt.Errorf("look %d", looks) })
	if err == nil || !strings.Contains(err.Error(), "last seen: look") {
		t.Errorf("error %v", err)
	}
	looks = 0
	err = d.eventually(t.Context(), "this", func(ctx context.Context) error {
		if looks++; looks == 1 {
			return errors.New("no")
		}
		<-ctx.Done()
		return errors.New("no time")
	})
	if err == nil || !strings.Contains(err.Error(), "last seen: no") || strings.Contains(err.Error(), "no time") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = d.eventually(ctx, "this", func(context.Context) error { return errors.New("no") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// checkNodes counts the nodes of the cluster and tells the API server's address.
func checkNodes(t *testing.T, kubeconfig string, want int) (host string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != want {
		t.Errorf("%d nodes, want %d", len(nodes.Items), want)
	}
	return config.Host
}

// checkGone: nobody listens where the API server did.
func checkGone(t *testing.T, host string) {
	t.Helper()
	resp, err := http.Get(host)
	if err == nil {
		err = resp.Body.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s: %v, want connection refused", host, err)
	}
}
