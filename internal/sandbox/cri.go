package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	listTimeout   = 10 * time.Second
	statusTimeout = 5 * time.Second
	// statusCalls is how many verbose statuses are asked for at a time.
	statusCalls = 8
	// maxMessage is kubelet's own bound on an answer of the runtime, in bytes.
	maxMessage = 16 << 20
)

// poller feeds a Tracker from CRI. Only its run calls methods, but for inspect.
type poller struct {
	t       *Tracker
	conn    *grpc.ClientConn
	runtime cri.RuntimeServiceClient
	slots   chan struct{}
	calls   sync.WaitGroup

	mu       sync.Mutex
	wanted   map[string]bool  // ready in the last list and not in the set
	asking   map[string]bool  // a verbose status is under way
	failed   map[string]error // could not be inspected; told once
	untried  map[string]bool  // of the first list
	hadFirst bool
}

func newPoller(t *Tracker) (*poller, error) {
	endpoint := t.opts.CRIEndpoint
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix://" + endpoint
	}
	if !strings.HasPrefix(endpoint, "unix:///") {
		return nil, fmt.Errorf("CRI endpoint %q: want unix:// and the absolute path of a socket, such as unix:///run/containerd/containerd.sock", t.opts.CRIEndpoint)
	}
	// gRPC's own backoff goes to two minutes; the runtime is on this machine.
	params := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 5 * time.Second,
	}
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(params), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("CRI endpoint %q: %w", t.opts.CRIEndpoint, err)
	}
	return &poller{
		t: t, conn: conn, runtime: cri.NewRuntimeServiceClient(conn),
		slots:  make(chan struct{}, statusCalls),
		wanted: map[string]bool{}, asking: map[string]bool{}, failed: map[string]error{},
	}, nil
}

func (p *poller) run(ctx context.Context) {
	tick := time.NewTicker(p.t.opts.PollInterval)
	defer tick.Stop()
	for {
		p.poll(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.calls.Wait()
			_ = p.conn.Close() // its only error is that it was closed before
			return
		}
	}
}

// poll takes one list. Ends are acted on at once; what is new is inspected
// aside, so that a status that hangs holds up neither.
func (p *poller) poll(ctx context.Context) {
	p.t.mu.Lock()
	since := p.t.set.seq
	p.t.mu.Unlock()

	callCtx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	resp, err := p.runtime.ListPodSandbox(callCtx, &cri.ListPodSandboxRequest{})
	if ctx.Err() != nil {
		return
	}
	p.setHealth(err)
	if err != nil {
		return // what was known stays: a runtime that is away has stopped nothing
	}
	list := make([]listed, 0, len(resp.GetItems()))
	for _, item := range resp.GetItems() {
		list = append(list, listed{
			ready: item.GetState() == cri.PodSandboxState_SANDBOX_READY,
			Sandbox: Sandbox{
				ID:     item.GetId(),
				PodUID: item.GetMetadata().GetUid(), PodNamespace: item.GetMetadata().GetNamespace(), PodName: item.GetMetadata().GetName(),
				Annotations: item.GetAnnotations(),
				CreatedAt:   time.Unix(0, item.GetCreatedAt()),
			},
		})
	}

	p.t.mu.Lock()
	ended, unknown := p.t.set.poll(list, since, time.Now())
	p.t.mu.Unlock()
	for _, id := range ended {
		p.t.end(id)
	}
	p.inspectAll(ctx, unknown)
}

// inspectAll starts a verbose status for each new sandbox.
func (p *poller) inspectAll(ctx context.Context, unknown []Sandbox) {
	p.mu.Lock()
	p.wanted = make(map[string]bool, len(unknown))
	for _, sb := range unknown {
		p.wanted[sb.ID] = true
	}
	for id := range p.failed {
		if !p.wanted[id] {
			delete(p.failed, id)
		}
	}
	if !p.hadFirst {
		p.hadFirst = true
		p.untried = make(map[string]bool, len(unknown))
		for _, sb := range unknown {
			p.untried[sb.ID] = true
		}
	}
	var start []Sandbox
	for _, sb := range unknown {
		// It may have been added since the list was compared.
		if !p.asking[sb.ID] && !p.t.lives(sb.ID) {
			p.asking[sb.ID] = true
			start = append(start, sb)
		}
	}
	complete := len(p.untried) == 0
	p.mu.Unlock()
	if complete {
		p.t.setSynced()
	}
	for _, sb := range start {
		p.calls.Go(func() { p.inspect(ctx, sb) })
	}
}

// inspect learns the sandbox's network namespace and adds it to the set, if it
// is still wanted by then. What fails is tried again at the next poll.
func (p *poller) inspect(ctx context.Context, sb Sandbox) {
	var err error
	select {
	case p.slots <- struct{}{}:
		sb.NetNS, err = p.namespace(ctx, sb.ID)
		<-p.slots
	case <-ctx.Done():
		err = ctx.Err()
	}

	p.mu.Lock()
	wanted := p.wanted[sb.ID]
	p.mu.Unlock()
	if err == nil && wanted {
		p.t.begin(sb, true)
	}

	p.mu.Lock()
	delete(p.asking, sb.ID)
	delete(p.untried, sb.ID)
	complete := len(p.untried) == 0
	tell := false
	if err != nil && p.wanted[sb.ID] && ctx.Err() == nil && status.Code(err) != codes.NotFound {
		tell = p.failed[sb.ID] == nil
		p.failed[sb.ID] = err
	}
	p.mu.Unlock()

	if tell {
		p.t.log.Error(err, "Can't learn a sandbox's network namespace; its pod's groups wait", "sandbox", sb.ID,
			"namespace", sb.PodNamespace, "pod", sb.PodName)
	}
	if complete && ctx.Err() == nil {
		p.t.setSynced()
	}
}

// namespace returns "" for a sandbox on the host's network.
func (p *poller) namespace(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	resp, err := p.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return "", err
	}
	if resp.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_NODE {
		return "", nil
	}
	return networkNamespace(resp.GetInfo())
}

func (p *poller) setHealth(err error) {
	if err != nil {
		err = fmt.Errorf("the container runtime doesn't answer at %s: %w", p.t.opts.CRIEndpoint, err)
	}
	p.t.mu.Lock()
	before := p.t.criErr
	p.t.criErr = err
	p.t.mu.Unlock()
	switch {
	case err != nil && (before == nil || errors.Is(before, errNotAsked)):
		p.t.log.Error(err, "Can't list sandboxes; those known stay")
	case err == nil && before != nil:
		p.t.log.Info("Following sandboxes through CRI", "endpoint", p.t.opts.CRIEndpoint)
	}
}
