package deviceplugin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	socketPrefix = "rdma-multicast-"
	// maxSocketPath is what sockaddr_un has room for, in bytes.
	maxSocketPath = 107
	// stopGrace is how long calls under way may take when a socket is given up.
	stopGrace = time.Second
	// listenTime is the most between a socket's being made and its being served.
	listenTime = time.Second
	// registerTimeout is for one registration; kubelet calls back within it.
	registerTimeout = 10 * time.Second
)

// endpoint is a server on a socket. Each registration has a new one: kubelets
// before 1.37 know an endpoint by its resource alone, and newer ones by its
// path, of which they must not know two.
type endpoint struct {
	path    string
	id      socketID
	grpc    *grpc.Server
	streams *streams
	served  chan struct{} // closed when Serve has returned
	err     error         // of Serve, once served is closed
}

// listen serves on a new socket in kubelet's folder.
func (s *server) listen(dir string) (*endpoint, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	name := s.name()
	path := filepath.Join(dir, socketPrefix+name[:min(len(name), 20)]+"-"+hex.EncodeToString(random[:])+".sock")
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket %s: its path has %d bytes, the kernel takes %d: use a shorter root for kubelet", path, len(path), maxSocketPath)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	e := &endpoint{path: path, grpc: grpc.NewServer(grpc.WaitForHandlers(true)), streams: newStreams(), served: make(chan struct{})}
	// Only root connects: what comes is believed.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	e.id, _ = identify(path)
	pluginapi.RegisterDevicePluginServer(e.grpc, &service{server: s, streams: e.streams})
	go func() {
		defer close(e.served)
		e.err = e.grpc.Serve(listener)
	}()
	return e, nil
}

// there tells whether the socket is still in its place.
func (e *endpoint) there() bool {
	id, ok := identify(e.path)
	return ok && id == e.id
}

// stop ends the streams, lets other calls finish for a moment, and takes the
// socket away.
func (e *endpoint) stop() {
	close(e.streams.closing)
	over := time.AfterFunc(stopGrace, e.grpc.Stop)
	e.grpc.GracefulStop()
	over.Stop()
	<-e.served
}

// register tells kubelet of an endpoint.
func register(ctx context.Context, kubelet, resource string, e *endpoint) error {
	conn, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version:      pluginapi.Version,
		Endpoint:     filepath.Base(e.path),
		ResourceName: resource,
		Options:      options(),
	})
	return errors.Join(err, conn.Close())
}

// removeStaleSockets removes sockets of ours that nobody serves any more: those
// of an agent that was killed. One that another instance serves stays, and so
// does one that it is about to listen on, which refuses for that moment too.
func removeStaleSockets(ctx context.Context, dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, socketPrefix+"*.sock"))
	if err != nil {
		return err
	}
	stale := refusing(ctx, paths)
	if len(stale) == 0 || !pause(ctx, listenTime) {
		return nil
	}
	var errs []error
	for _, path := range refusing(ctx, stale) {
		errs = append(errs, removeFile(path))
	}
	return errors.Join(errs...)
}

// refusing are the sockets that refuse a connection.
func refusing(ctx context.Context, paths []string) []string {
	var dialer net.Dialer
	var out []string
	for _, path := range paths {
		if _, ok := identify(path); !ok {
			continue
		}
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			_ = conn.Close() // nothing was written to it
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			out = append(out, path)
		}
	}
	return out
}
