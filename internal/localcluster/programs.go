package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// assetsVersion is the release series that is asked of setup-envtest's server.
// It is that of hack/kubernetes/go.mod, which is what is built otherwise.
const assetsVersion = "1.37"

// probeTimeout bounds the question whether setup-envtest's server can be
// reached. A machine without it shall not wait for it.
const probeTimeout = 3 * time.Second

// downloadFolder holds what setup-envtest's server gave, below the cache folder.
const downloadFolder = "envtest"

// programNames are what a control plane is made of, and kubectl.
var programNames = [...]string{"etcd", "kube-apiserver", "kubectl"}

// ModuleRoot is the folder of this module's go.mod, looked for from the
// working directory upwards.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for from := dir; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/rdma-multicast/rdma-multicast\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s isn't inside a checkout of rdma-multicast: its CRDs and build scripts are needed", from)
		}
	}
}

// locatePrograms is the folder of programs that are already on this machine:
// $KUBEBUILDER_ASSETS if it is set, else what an earlier run has built or
// downloaded. It is empty where there is none.
func locatePrograms(ctx context.Context, root string) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		if missing := missingPrograms(dir); len(missing) > 0 {
			return "", fmt.Errorf("KUBEBUILDER_ASSETS=%s has no %s: unset it, or point it at a folder with %s",
				dir, strings.Join(missing, ", "), strings.Join(programNames[:], ", "))
		}
		return dir, nil
	}
	// Without names the script builds nothing and prints the folder.
	dir, err := buildPrograms(ctx, root, io.Discard)
	if err != nil {
		return "", err
	}
	if len(missingPrograms(dir)) == 0 {
		return dir, nil
	}
	cache, err := cacheDir(ctx, root)
	if err != nil {
		return "", err
	}
	downloaded, err := filepath.Glob(filepath.Join(cache, downloadFolder, assetsVersion+".*-"+runtime.GOOS+"-"+runtime.GOARCH))
	if err != nil {
		return "", err
	}
	for _, dir := range downloaded {
		if len(missingPrograms(dir)) == 0 {
			return dir, nil
		}
	}
	return "", nil
}

// cacheDir is where built and downloaded programs are kept between runs.
func cacheDir(ctx context.Context, root string) (string, error) {
	script := filepath.Join(root, "hack", "cache-dir.sh")
	out, err := exec.CommandContext(ctx, script).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// buildPrograms builds the named programs from Go modules, where they haven't
// been before, and returns their folder. The first time takes minutes.
func buildPrograms(ctx context.Context, root string, progress io.Writer, names ...string) (string, error) {
	script := filepath.Join(root, "hack", "kubernetes", "build.sh")
	cmd := exec.CommandContext(ctx, script, names...)
	cmd.Stderr = progress
	// A process group of its own, so that the compilers end with the script.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s by %s: %w", strings.Join(names, ", "), script, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func missingPrograms(dir string) []string {
	var missing []string
	for _, name := range programNames {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

// answers tells why the index of setup-envtest's server can't be had, quickly.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
