package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout is how long etcd, and then kube-apiserver, may take to answer.
// On an idle machine both together take a few seconds.
const startTimeout = 90 * time.Second

// ControlPlaneOptions say how to start a control plane.
type ControlPlaneOptions struct {
	// Root of the checkout; empty: looked for from the working directory.
	Root string
	// Log gets what etcd and kube-apiserver print; nil: it is discarded.
	Log io.Writer
	// Progress gets a line for each thing that takes long, such as the first
	// build of the programs; nil: nothing is told.
	Progress io.Writer
	// IndexURL is where setup-envtest's server lists its archives; empty: the
	// one that is built into it.
	IndexURL string
}

// ControlPlane is a running etcd and kube-apiserver with this project's CRDs.
type ControlPlane struct {
	// Config is the administrator's.
	Config *rest.Config
	// Kubeconfig is the administrator's, as the contents of a file.
	Kubeconfig []byte
	// Kubectl is the path of a kubectl of the API server's version.
	Kubectl string

	env *envtest.Environment
}

// StartControlPlane starts etcd and kube-apiserver on free ports of the
// loopback interface, with RBAC and with the CRDs of config/crd, and waits
// until they answer. The programs come from $KUBEBUILDER_ASSETS, from an earlier
// build, from setup-envtest's server if it answers, or are built from Go
// modules, in this order. Data is kept in temporary folders until Stop.
//
// Ending ctx gives up the search for programs and the build; once the
// processes are being started, it is looked at when they have.
func StartControlPlane(ctx context.Context, opts ControlPlaneOptions) (*ControlPlane, error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	root := opts.Root
	if root == "" {
		var err error
		if root, err = ModuleRoot(); err != nil {
			return nil, err
		}
	}
	crds := filepath.Join(root, "config", "crd", "bases")
	dir, err := locatePrograms(ctx, root)
	if err != nil {
		return nil, err
	}
	if dir != "" {
		return startFrom(ctx, dir, crds, opts)
	}
	plane, err := startDownloaded(ctx, root, crds, opts)
	if !errors.Is(err, errNoDownload) {
		return plane, err
	}
	if opts.Log != nil {
		fmt.Fprintln(opts.Log, err)
	}
	fmt.Fprintln(opts.Progress, "no prebuilt programs reachable; building them from Go modules, once, which takes minutes")
	if dir, err = buildPrograms(ctx, root, opts.Progress, programNames[:]...); err != nil {
		return nil, err
	}
	return startFrom(ctx, dir, crds, opts)
}

// startFrom is start with the programs of a folder.
func startFrom(ctx context.Context, dir, crds string, opts ControlPlaneOptions) (*ControlPlane, error) {
	env := environment(crds, opts.Log)
	env.ControlPlane.Etcd.Path = filepath.Join(dir, "etcd")
	env.ControlPlane.APIServer.Path = filepath.Join(dir, "kube-apiserver")
	env.ControlPlane.KubectlPath = filepath.Join(dir, "kubectl")
	return start(ctx, env)
}

// errNoDownload means that the programs couldn't be had from setup-envtest's
// server.
var errNoDownload = errors.New("setup-envtest's server doesn't serve the programs")

// startDownloaded is start with programs from setup-envtest's server, by the
// code that envtest has for it (digests checked), kept in the cache folder.
func startDownloaded(ctx context.Context, root, crds string, opts ControlPlaneOptions) (*ControlPlane, error) {
	url := opts.IndexURL
	if url == "" {
		url = envtest.DefaultBinaryAssetsIndexURL
	}
	if err := answers(ctx, url); err != nil {
		return nil, fmt.Errorf("%w (%w)", errNoDownload, err)
	}
	cache, err := cacheDir(ctx, root)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(opts.Progress, "fetching %s %s, once (kept in %s) ...\n", strings.Join(programNames[:], ", "), assetsVersion, cache)
	env := environment(crds, opts.Log)
	env.DownloadBinaryAssets = true
	env.DownloadBinaryAssetsVersion = assetsVersion
	env.DownloadBinaryAssetsIndexURL = url
	env.BinaryAssetsDirectory = filepath.Join(cache, downloadFolder)
	plane, err := start(ctx, env)
	if err != nil && env.ControlPlane.KubectlPath == "" {
		// The paths are set once the download has succeeded.
		return nil, fmt.Errorf("%w (%w)", errNoDownload, err)
	}
	return plane, err
}

// environment has neither programs nor the means to get them yet.
func environment(crds string, log io.Writer) *envtest.Environment {
	no := false
	return &envtest.Environment{
		UseExistingCluster:       &no,
		CRDDirectoryPaths:        []string{crds},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlane: envtest.ControlPlane{
			APIServer: &envtest.APIServer{Out: log, Err: log},
			Etcd:      &envtest.Etcd{Out: log, Err: log},
		},
	}
}

// start starts env and stops what it has started when it fails.
func start(ctx context.Context, env *envtest.Environment) (*ControlPlane, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	config, err := env.Start()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd and kube-apiserver: %w", err), env.Stop())
	}
	return &ControlPlane{
		Config:     config,
		Kubeconfig: env.KubeConfig,
		Kubectl:    env.ControlPlane.KubectlPath,
		env:        env,
	}, nil
}

// User is a configuration for the API server as somebody without any right
// but those that RBAC gives to the name and its groups.
func (c *ControlPlane) User(name string, groups ...string) (*rest.Config, error) {
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{})
	if err != nil {
		return nil, fmt.Errorf("certificate for %s: %w", name, err)
	}
	return user.Config(), nil
}

// Stop ends both processes, waits for them and removes their data.
func (c *ControlPlane) Stop() error { return c.env.Stop() }

// WriteKubeconfig writes the administrator's kubeconfig for its owner alone.
func (c *ControlPlane) WriteKubeconfig(path string) error {
	return os.WriteFile(path, c.Kubeconfig, 0o600)
}
