package localcluster_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestControlPlaneLeavesNothingBehind(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp) // where envtest keeps data and certificates

	plane, err := localcluster.StartControlPlane(t.Context(), localcluster.ControlPlaneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := childProcesses(t); len(got) != 2 {
		t.Errorf("processes while it runs: %q, want etcd and kube-apiserver", got)
	}

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), plane.Kubectl, "--kubeconfig", kubeconfig, "get", "crd", "-o", "name").CombinedOutput()
	if err != nil {
		t.Errorf("kubectl get crd: %v\n%s", err, out)
	}
	for _, crd := range []string{"multicastgroups", "multicastnodes"} {
		if !strings.Contains(string(out), crd+".rdma-multicast.dev") {
			t.Errorf("CRD %s isn't there; kubectl get crd:\n%s", crd, out)
		}
	}

	config, err := plane.User("nobody-in-particular")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights lists nodes: %v, want Forbidden", err)
	}

	if err := plane.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if got := childProcesses(t); len(got) > 0 {
		t.Errorf("processes after Stop: %q", got)
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %q, %v", left, err)
	}
}

func TestControlPlaneGivesUpWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Interrupted as soon as etcd prints something, so while it is starting.
	_, err := localcluster.StartControlPlane(ctx, localcluster.ControlPlaneOptions{Log: writerFunc(cancel)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if got := childProcesses(t); len(got) > 0 {
		t.Errorf("processes: %q", got)
	}
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestControlPlaneSaysWhatIsMissing(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", empty)
	_, err := localcluster.StartControlPlane(t.Context(), localcluster.ControlPlaneOptions{})
	if err == nil {
		t.Fatal("started without programs")
	}
	for _, want := range []string{empty, "etcd", "kube-apiserver", "kubectl", "unset it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't say %q", err, want)
		}
	}
}

// The archive's programs call the real ones, so that what is downloaded is
// small and yet starts.
func TestControlPlaneFromSetupEnvtestsServer(t *testing.T) {
	real := os.Getenv("KUBEBUILDER_ASSETS")
	if real == "" {
		t.Fatal("KUBEBUILDER_ASSETS isn't set: run make test")
	}
	archive := scripts(t, map[string]string{
		"etcd":           "#!/bin/sh\nexec " + real + "/etcd \"$@\"\n",
		"kube-apiserver": "#!/bin/sh\nexec " + real + "/kube-apiserver \"$@\"\n",
		"kubectl":        "#!/bin/sh\nexec " + real + "/kubectl \"$@\"\n",
	})
	digest := sha512.Sum512(archive)
	asked := 0
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/archive", func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if _, err := w.Write(archive); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/index", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "releases:\n  v1.37.9:\n    envtest-v1.37.9-%s-%s.tar.gz:\n      hash: %s\n      selfLink: %s/archive\n",
			runtime.GOOS, runtime.GOARCH, hex.EncodeToString(digest[:]), server.URL)
	})

	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("RDMA_MULTICAST_CACHE", t.TempDir()) // nothing is built there
	opts := localcluster.ControlPlaneOptions{IndexURL: server.URL + "/index"}
	for run := 1; run <= 2; run++ {
		plane, err := localcluster.StartControlPlane(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
		if asked != 1 {
			t.Errorf("run %d: archive fetched %d times, want once for both", run, asked)
		}
	}
}

func scripts(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for name, text := range files {
		header := &tar.Header{Name: "controller-tools/envtest/" + name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// childProcesses are the command lines of this process's children.
func childProcesses(t *testing.T) []string {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, list := range lists {
		pids, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(pids)) {
			command, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if err == nil {
				commands = append(commands, strings.ReplaceAll(string(command), "\x00", " "))
			}
		}
	}
	return commands
}
