package controllers_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// tap sits between a controller and the API server. It counts requests, and can
// hold back what the watch of MulticastNodes brings, so that the cache of these
// grows stale while everything else works.
type tap struct {
	mu      sync.Mutex
	lists   int // of MulticastNodes past the cache
	writes  []string
	stalled chan struct{} // closed when events flow again; nil: they flow
}

func (t *tap) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper{next, func(req *http.Request) (*http.Response, error) {
		nodes := strings.HasSuffix(req.URL.Path, "/multicastnodes")
		watch := req.URL.Query().Get("watch") != ""
		t.mu.Lock()
		switch {
		case nodes && !watch && req.URL.Query().Get("limit") == "250":
			t.lists++
		case req.Method != http.MethodGet && strings.HasSuffix(req.URL.Path, "/status"):
			t.writes = append(t.writes, req.URL.Path)
		}
		t.mu.Unlock()
		resp, err := next.RoundTrip(req)
		if err == nil && nodes && watch {
			resp.Body = &stallingBody{ReadCloser: resp.Body, tap: t, closed: make(chan struct{})}
		}
		return resp, err
	}}
}

func (t *tap) stall() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stalled = make(chan struct{})
}

func (t *tap) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stalled != nil {
		close(t.stalled)
		t.stalled = nil
	}
}

func (t *tap) nodeLists() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lists
}

func (t *tap) statusWrites() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.writes)
}

type roundTripper struct {
	next http.RoundTripper
	trip func(*http.Request) (*http.Response, error)
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r.trip(req) }

// WrappedRoundTripper is where apimachinery looks for connections to close.
func (r roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

// stallingBody hands on what it has read only while its tap lets it.
type stallingBody struct {
	io.ReadCloser
	tap    *tap
	once   sync.Once
	closed chan struct{}
}

func (b *stallingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tap.mu.Lock()
	stalled := b.tap.stalled
	b.tap.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-b.closed:
		}
	}
	return n, err
}

func (b *stallingBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
