package localcluster

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// APITap sits between one agent and the API server. It notes what the agent
// asked, and can hold back what a watch of MulticastGroups brings, so that the
// agent's cache grows stale while everything else still works.
type APITap struct {
	mu      sync.Mutex
	calls   []APICall
	stalled chan struct{} // nil: watches flow; closed when they flow again
}

// APICall is one request that isn't a watch, and its answer.
type APICall struct {
	Method string
	Path   string
	Status int
}

// maxCalls bounds what is noted: the newest are kept.
const maxCalls = 1000

// StallGroupWatches holds back the events of every watch of MulticastGroups,
// those that run and those to come.
func (t *APITap) StallGroupWatches() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stalled == nil {
		t.stalled = make(chan struct{})
	}
}

// Resume lets everything through that was held back.
func (t *APITap) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stalled != nil {
		close(t.stalled)
		t.stalled = nil
	}
}

// Calls since the last Forget, oldest first.
func (t *APITap) Calls() []APICall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]APICall(nil), t.calls...)
}

// Forget what was noted.
func (t *APITap) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = nil
}

// wrap is for rest.Config's WrapTransport.
func (t *APITap) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if req.URL.Query().Get("watch") == "" {
			t.note(APICall{Method: req.Method, Path: req.URL.Path, Status: resp.StatusCode})
		} else if strings.HasSuffix(req.URL.Path, "/multicastgroups") {
			resp.Body = &stallingBody{ReadCloser: resp.Body, tap: t, closed: make(chan struct{})}
		}
		return resp, nil
	})
}

func (t *APITap) note(call APICall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.calls) == maxCalls {
		t.calls = t.calls[1:]
	}
	t.calls = append(t.calls, call)
}

func (t *APITap) waitUntilFlowing(closed <-chan struct{}) {
	t.mu.Lock()
	stalled := t.stalled
	t.mu.Unlock()
	if stalled == nil {
		return
	}
	select {
	case <-stalled:
	case <-closed:
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// stallingBody hands on what it has read only while its tap lets it.
type stallingBody struct {
	io.ReadCloser
	tap    *APITap
	once   sync.Once
	closed chan struct{}
}

func (b *stallingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tap.waitUntilFlowing(b.closed)
	return n, err
}

func (b *stallingBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
