package deviceplugin

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/testr"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const nic = DefaultResource

// world is a node with plugins on it.
type world struct {
	t       testing.TB
	fabric  *rdmatest.Fabric
	node    *rdmatest.Node
	root    string // kubelet's
	sysfs   string
	tune    func(*Plugin) // before it runs
	options Options

	mu       sync.Mutex
	configs  []error
	problems []Problem
	starts   []Allocation
	gate     func(context.Context, Allocation) error
}

// newWorld has a node with two Soft-RoCE devices, rxe0 on eth0 and rxe1 on eth1.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, root: kubeletRoot(t)}
	w.fabric = rdmatest.NewFabric()
	w.node = w.fabric.AddNode("node")
	w.node.AddNIC("rxe0", "eth0", netip.MustParsePrefix("10.0.0.2/24"))
	w.node.AddNIC("rxe1", "eth1", netip.MustParsePrefix("10.0.1.2/24"))
	dir := t.TempDir()
	w.sysfs = filepath.Join(dir, "sys")
	w.options = Options{
		Host: w.node.Host(), Gate: w, KubeletRoot: w.root,
		StateDir: filepath.Join(dir, "allocations"), CDIDir: filepath.Join(dir, "cdi"),
		Sysfs: os.DirFS(w.sysfs), DevDir: filepath.Join(dir, "infiniband"),
		OnConfig: func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.configs = append(w.configs, err)
		},
		OnProblems: func(problems []Problem) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.problems = problems
		},
	}
	return w
}

// PreStart is the world's gate.
func (w *world) PreStart(ctx context.Context, a Allocation) error {
	w.mu.Lock()
	w.starts = append(w.starts, a)
	gate := w.gate
	w.mu.Unlock()
	if gate == nil {
		return nil
	}
	return gate(ctx, a)
}

func (w *world) setGate(gate func(context.Context, Allocation) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = gate
}

// start runs a plugin. The function ends it, and may be called twice.
func (w *world) start() (p *Plugin, stop func()) {
	w.t.Helper()
	o := w.options
	if t, ok := w.t.(*testing.T); ok {
		o.Log = testr.New(t) // a plugin ends before its test does
	}
	p, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.tune != nil {
		w.tune(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return p, stop
}

// configure writes the configuration file, and has plugins read it.
func (w *world) configure(text string) {
	w.t.Helper()
	if w.options.ConfigFile == "" {
		w.options.ConfigFile = filepath.Join(w.t.TempDir(), "config.json")
	}
	if err := replaceFile(w.options.ConfigFile, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// configError is the newest answer to a configuration, and their number.
func (w *world) configError() (n int, last error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.configs) == 0 {
		return 0, nil
	}
	return len(w.configs), w.configs[len(w.configs)-1]
}

// hasProblem tells whether a problem with these words is told.
func (w *world) hasProblem(words ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.problems {
		all := true
		for _, word := range words {
			all = all && strings.Contains(p.String(), word)
		}
		if all {
			return true
		}
	}
	return false
}

func (w *world) problemCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.problems)
}

// addNode makes a node of /dev/infiniband.
func (w *world) addNode(name string) {
	w.t.Helper()
	if err := os.MkdirAll(w.options.DevDir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.options.DevDir, name), nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// addAttribute makes a file of sysfs.
func (w *world) addAttribute(path, text string) {
	w.t.Helper()
	path = filepath.Join(w.sysfs, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}
