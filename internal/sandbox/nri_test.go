package sandbox_test

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"

	"github.com/rdma-multicast/rdma-multicast/internal/sandbox"
)

// dying is a runtime that takes plugins' registrations and dies before it has
// configured them.
type dying struct {
	registered atomic.Int64
	drop       chan struct{}
}

func (d *dying) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	d.registered.Add(1)
	d.drop <- struct{}{}
	return &api.Empty{}, nil
}

func (d *dying) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return &api.UpdateContainersResponse{}, nil
}

// serve answers one plugin after the other, each until it has registered.
func (d *dying) serve(t *testing.T, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		mux := multiplex.Multiplex(conn)
		inner, err := mux.Listen(multiplex.RuntimeServiceConn)
		if err != nil {
			t.Error(err)
			return
		}
		server, err := ttrpc.NewServer()
		if err != nil {
			t.Error(err)
			return
		}
		api.RegisterRuntimeService(server, d)
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(context.Background(), inner)
		}()
		<-d.drop
		// Let the answer out, mostly: both orders have to do.
		time.Sleep(time.Millisecond)
		_ = mux.Close()
		_ = server.Close()
		<-served
	}
}

func TestRuntimeThatDiesBeforeItHasConfiguredThePlugin(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := &dying{drop: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		d.serve(t, l)
	}()
	tr := sandbox.NewTracker(sandbox.Options{NRISocket: socket})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tr.Run(ctx) }()
	eventually(t, "the plugin comes again and again", func() bool { return d.registered.Load() >= 3 })
	if _, nri := tr.Health(); nri == nil {
		t.Error("Health tells nothing of a connection that was never made")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-served
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}
