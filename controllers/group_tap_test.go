package controllers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// tap sits between a controller and the API server. It counts requests, keeps
// what was written of groups, and can hold back what the watch of MulticastNodes
// brings, so that the cache of these grows stale while everything else works.
type tap struct {
	mu      sync.Mutex
	lists   int                       // of MulticastNodes past the cache
	written []v1alpha1.MulticastGroup // by status writes, as the API server answered
	stalled chan struct{}             // closed when events flow again; nil: they flow
	held    *heldWrite                // nil: none
}

// heldWrite is a write of one group's status that is held back.
type heldWrite struct {
	path                string // what the request's ends with
	came, letGo         chan struct{}
	cameOnce, letGoOnce sync.Once
}

func (h *heldWrite) release() { h.letGoOnce.Do(func() { close(h.letGo) }) }

// hold has the status write of a group wait until it is released.
func (t *tap) hold(group string) *heldWrite {
	h := &heldWrite{path: "/" + group + "/status", came: make(chan struct{}), letGo: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = h
	return h
}

func (t *tap) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper{next, func(req *http.Request) (*http.Response, error) {
		nodes := strings.HasSuffix(req.URL.Path, "/multicastnodes")
		watch := req.URL.Query().Get("watch") != ""
		status := req.Method != http.MethodGet && strings.HasSuffix(req.URL.Path, "/status")
		t.mu.Lock()
		if nodes && !watch && req.URL.Query().Get("limit") == "250" {
			t.lists++
		}
		held := t.held
		t.mu.Unlock()
		if status && held != nil && strings.HasSuffix(req.URL.Path, held.path) {
			held.cameOnce.Do(func() { close(held.came) })
			<-held.letGo
		}
		resp, err := next.RoundTrip(req)
		if err == nil && status && resp.StatusCode == http.StatusOK {
			resp.Body, err = t.keep(resp.Body)
		}
		if err == nil && nodes && watch {
			resp.Body = &stallingBody{ReadCloser: resp.Body, tap: t, closed: make(chan struct{})}
		}
		return resp, err
	}}
}

// keep notes the group of an answer, and returns the answer's body anew.
func (t *tap) keep(body io.ReadCloser) (io.ReadCloser, error) {
	text, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	var g v1alpha1.MulticastGroup
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written = append(t.written, g)
	return io.NopCloser(bytes.NewReader(text)), nil
}

// groups that status writes left, in the order of the API server's revisions.
func (t *tap) groups() ([]v1alpha1.MulticastGroup, error) {
	t.mu.Lock()
	written := slices.Clone(t.written)
	t.mu.Unlock()
	var failed error
	slices.SortFunc(written, func(a, b v1alpha1.MulticastGroup) int {
		order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
		failed = errors.Join(failed, err)
		return order
	})
	return written, failed
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

// statusWrites is the number of those that wake agents: a conflict doesn't.
func (t *tap) statusWrites() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.written)
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
