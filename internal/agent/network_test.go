package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// network is between one agent and the API server.
type network struct {
	mu      sync.Mutex
	down    bool
	conns   map[net.Conn]struct{}
	stalled chan struct{} // not nil: watches of groups deliver nothing until it is closed

	nodeWrites, podPatches atomic.Int64
}

// config is the agent's way to the API server.
func (n *network) config() *rest.Config {
	c := rest.CopyConfig(cluster.agent)
	c.Dial = n.dial
	c.QPS = -1
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return tap{n, next} })
	return c
}

var errDown = errors.New("the API server is away")

func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errDown
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	if n.conns == nil {
		n.conns = map[net.Conn]struct{}{}
	}
	n.conns[conn] = struct{}{}
	return conn, nil
}

// cut ends all connections and lets no new one through.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}

func (n *network) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

// stallGroups lets watches of groups deliver nothing more until resume.
func (n *network) stallGroups() (resume func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	stalled := make(chan struct{})
	n.stalled = stalled
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.stalled = nil
		close(stalled)
	})
}

func (n *network) gate() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stalled
}

// tap counts writes and holds up watches.
type tap struct {
	network *network
	next    http.RoundTripper
}

func (t tap) RoundTrip(req *http.Request) (*http.Response, error) {
	path := req.URL.Path
	switch {
	case req.Method == http.MethodPut && strings.Contains(path, "/multicastnodes/"):
		t.network.nodeWrites.Add(1)
	case req.Method == http.MethodPatch && strings.Contains(path, "/pods/"):
		t.network.podPatches.Add(1)
	}
	resp, err := t.next.RoundTrip(req)
	if err == nil && strings.HasSuffix(path, "/multicastgroups") && req.URL.Query().Get("watch") != "" {
		resp.Body = &stallable{ReadCloser: resp.Body, network: t.network, closed: make(chan struct{})}
	}
	return resp, err
}

// stallable is the body of a watch. What had been read when it stalls is
// delivered after.
type stallable struct {
	io.ReadCloser
	network *network
	once    sync.Once
	closed  chan struct{}
}

func (s *stallable) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if gate := s.network.gate(); gate != nil {
		select {
		case <-gate:
		case <-s.closed:
		}
	}
	return n, err
}

func (s *stallable) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.ReadCloser.Close()
}
