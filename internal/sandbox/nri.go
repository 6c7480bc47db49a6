package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
	"github.com/go-logr/logr"
)

const (
	pluginName  = "rdma-multicast"
	pluginIndex = "10"

	// runtimeCRIO is how CRI-O calls itself.
	runtimeCRIO = "cri-o"

	reconnectFirst = 200 * time.Millisecond
	// reconnectMax is short: a pod that ends meanwhile is left after its network
	// has gone, and dialling a socket that isn't there costs nothing.
	reconnectMax = time.Second
)

// followNRI keeps a plugin connected until ctx ends: the socket goes and comes
// with the runtime.
func (t *Tracker) followNRI(ctx context.Context) {
	wait := reconnectFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := t.nriSession(ctx)
		if ctx.Err() != nil {
			return
		}
		t.setNRIHealth(err)
		if time.Since(began) > reconnectMax {
			wait = reconnectFirst
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
		}
		wait = min(2*wait, reconnectMax)
	}
}

// nriSession is one connection, from registering to its loss. Never nil.
func (t *Tracker) nriSession(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", t.opts.NRISocket)
	if err != nil {
		return err
	}
	conn := &watchedConn{Conn: raw, lost: make(chan struct{})}
	defer func() { _ = conn.Close() }() // closed by the stub as a rule
	p := &plugin{t: t, configured: make(chan struct{}), started: map[string]bool{}, running: map[string]map[string]bool{}}
	s, err := stub.New(p,
		stub.WithConnection(conn), stub.WithPluginName(pluginName), stub.WithPluginIdx(pluginIndex),
		stub.WithLogger(stubLog{t.log}),
		// Being slow once must not cost the events that follow.
		stub.WithFailurePolicy(&api.FailurePolicy{KeepConnected: true}))
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	select {
	case err = <-ran:
	case <-conn.lost:
		cancel()
		err = <-p.finish(s, ran)
	case <-ctx.Done():
		_ = conn.Close()
		err = <-p.finish(s, ran)
	}
	s.Stop()
	if err == nil {
		err = net.ErrClosed
	}
	return fmt.Errorf("connection to NRI at %s ended: %w", t.opts.NRISocket, err)
}

// finish lets the stub's Run come to an end. Once it has registered, the stub
// waits for the runtime's Configure without an end; if the connection goes
// before that came, this is the call that it waits for.
func (p *plugin) finish(s stub.Stub, ran <-chan error) <-chan error {
	select {
	case <-p.configured:
	default:
		if c, ok := s.(interface {
			Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error)
		}); ok {
			_, _ = c.Configure(context.Background(), &api.ConfigureRequest{NRIVersion: s.PluginNRIVersion()})
		}
	}
	return ran
}

func (t *Tracker) setNRIHealth(err error) {
	t.mu.Lock()
	before := t.nriErr
	t.nriErr = err
	t.mu.Unlock()
	switch {
	case err != nil && (before == nil || errors.Is(before, errNotAsked)):
		t.log.Info("NRI isn't connected: memberships end when the poll has seen a sandbox stop, after its network may have gone", "reason", err.Error())
	case err == nil && before != nil:
		t.log.Info("Following sandboxes through NRI", "socket", t.opts.NRISocket)
	}
}

// plugin is one connection's. No method returns an error: it would fail the
// pod's own request.
type plugin struct {
	t          *Tracker
	once       sync.Once
	configured chan struct{}

	mu      sync.Mutex
	late    bool                       // the runtime tells of a stop once the network has gone
	started map[string]bool            // sandboxes that this connection saw start: their stop will be told
	running map[string]map[string]bool // running containers by sandbox
}

// Configure subscribes to what plugin has methods for.
func (p *plugin) Configure(_ context.Context, _, runtime, _ string) (api.EventMask, error) {
	p.mu.Lock()
	p.late = runtime == runtimeCRIO
	p.mu.Unlock()
	p.once.Do(func() { close(p.configured) })
	return 0, nil
}

// Synchronize gets all that exists when the plugin has connected, stopped
// sandboxes included; those have no namespaces.
func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	for _, c := range containers {
		if c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			p.containerRuns(c.GetPodSandboxId(), c.GetId())
		}
	}
	p.mu.Unlock()
	p.t.setNRIHealth(nil)
	if p.t.opts.CRIEndpoint != "" {
		return nil, nil // the poll's list is newer, and tells for sure what is ready
	}
	exist := make(map[string]bool, len(pods))
	for _, pod := range pods {
		exist[pod.GetId()] = true
		if sb, ok := fromNRI(pod); ok {
			p.t.begin(sb, false)
		}
	}
	live, _ := p.t.Sandboxes()
	for _, sb := range live {
		if !exist[sb.ID] {
			p.t.end(sb.ID)
		}
	}
	p.t.forget(exist)
	p.t.setSynced()
	return nil, nil
}

// RunPodSandbox comes when the sandbox's network is up.
func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.mu.Lock()
	p.started[pod.GetId()] = true
	p.mu.Unlock()
	if sb, ok := fromNRI(pod); ok {
		p.t.begin(sb, false)
	}
	return nil
}

// StopPodSandbox comes before the sandbox's network is torn down in containerd,
// and after it in CRI-O, where StopContainer has left as a rule.
func (p *plugin) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	p.t.endInHook(ctx, pod.GetId())
	return nil
}

// RemovePodSandbox comes for sandboxes that have stopped, and for those whose
// start has failed.
func (p *plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	p.mu.Lock()
	delete(p.started, pod.GetId())
	delete(p.running, pod.GetId())
	p.mu.Unlock()
	if p.t.lives(pod.GetId()) {
		p.t.endInHook(ctx, pod.GetId())
	}
	return nil
}

// StartContainer notes what runs.
func (p *plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.containerRuns(c.GetPodSandboxId(), c.GetId())
	return nil
}

func (p *plugin) containerRuns(sandboxID, containerID string) {
	if p.running[sandboxID] == nil {
		p.running[sandboxID] = map[string]bool{}
	}
	p.running[sandboxID][containerID] = true
}

// StopContainer stands in for StopPodSandbox where that won't come, or will come
// too late: see Options.Ending.
func (p *plugin) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	id := c.GetPodSandboxId()
	p.mu.Lock()
	delete(p.running[id], c.GetId())
	last := len(p.running[id]) == 0 && (p.late || !p.started[id])
	p.mu.Unlock()
	if last && pod != nil && p.t.opts.Ending(pod.GetNamespace(), pod.GetName(), pod.GetUid()) {
		p.t.endInHook(ctx, id)
	}
	return nil, nil
}

// fromNRI is false for a sandbox whose namespaces aren't told, because it has
// stopped or its spec can't be read, or whose network namespace has no absolute
// path: CRI decides. A list of namespaces without a network one is a
// host-network pod's.
func fromNRI(pod *api.PodSandbox) (Sandbox, bool) {
	sb := Sandbox{
		ID: pod.GetId(), PodUID: pod.GetUid(), PodNamespace: pod.GetNamespace(), PodName: pod.GetName(),
		Annotations: pod.GetAnnotations(), CreatedAt: time.Now(),
	}
	namespaces := pod.GetLinux().GetNamespaces()
	for _, ns := range namespaces {
		if ns.GetType() == "network" {
			sb.NetNS = ns.GetPath()
			return sb, sb.ID != "" && filepath.IsAbs(sb.NetNS)
		}
	}
	return sb, sb.ID != "" && len(namespaces) > 0
}

// watchedConn tells when its peer has gone.
type watchedConn struct {
	net.Conn
	once sync.Once
	lost chan struct{}
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.once.Do(func() { close(c.lost) })
	}
	return n, err
}

// stubLog turns the stub's own lines to debug level: followNRI tells what
// matters.
type stubLog struct{ log logr.Logger }

var _ nrilog.Logger = stubLog{}

func (l stubLog) Debugf(_ context.Context, format string, args ...any) { l.write(format, args) }
func (l stubLog) Infof(_ context.Context, format string, args ...any)  { l.write(format, args) }
func (l stubLog) Warnf(_ context.Context, format string, args ...any)  { l.write(format, args) }
func (l stubLog) Errorf(_ context.Context, format string, args ...any) { l.write(format, args) }

func (l stubLog) write(format string, args []any) {
	if log := l.log.V(1); log.Enabled() {
		log.Info(fmt.Sprintf(format, args...))
	}
}
