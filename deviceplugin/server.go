package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Gate is asked before each start of a container.
type Gate interface {
	// PreStart returns nil when the container may start. An error is shown at the
	// pod, and kubelet tries again. It must return soon after ctx has ended.
	// Safe for concurrent use.
	PreStart(ctx context.Context, allocation Allocation) error
}

// server is a resource: its snapshot, and the answers to kubelet's calls.
type server struct {
	resource        string
	gate            Gate
	directories     *directories
	preStartTimeout time.Duration

	mu      sync.Mutex
	current *snapshot
	changed chan struct{} // closed when current is replaced
}

func newServer(resource string, o *Options, d *directories, first *snapshot) *server {
	return &server{
		resource: resource, gate: o.Gate, directories: d, preStartTimeout: o.PreStartTimeout,
		current: first, changed: make(chan struct{}),
	}
}

// update replaces the snapshot. Open streams tell kubelet if it would see a
// difference.
func (s *server) update(next *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = next
	close(s.changed)
	s.changed = make(chan struct{})
}

// snapshot is the present one, with what tells of the next.
func (s *server) snapshot() (*snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed
}

func options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
}

// service answers for a server on one socket.
type service struct {
	pluginapi.UnimplementedDevicePluginServer
	*server
	streams *streams
}

// GetDevicePluginOptions tells kubelet which calls it has to make.
func (s *service) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch sends the whole list, and again whenever it has changed, until
// kubelet or the socket goes.
func (s *service) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	s.streams.open()
	defer s.streams.close()
	var sent *snapshot
	for {
		next, changed := s.snapshot()
		if sent == nil || !next.sameList(sent) {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: next.list}); err != nil {
				return err
			}
			sent = next
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.streams.closing:
			return nil
		}
	}
}

// GetPreferredAllocation advises kubelet which slots to hand out.
func (s *service) GetPreferredAllocation(_ context.Context, request *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	snapshot, _ := s.snapshot()
	out := &pluginapi.PreferredAllocationResponse{}
	for _, r := range request.ContainerRequests {
		if r == nil {
			return nil, invalid("GetPreferredAllocation: resource %s: an empty request", s.resource)
		}
		ids, err := snapshot.prefer(r)
		if err != nil {
			return nil, err
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate says what containers get for their slots. kubelet admits no other
// pod meanwhile, so that it waits for nothing but the making of a directory.
func (s *service) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	snapshot, _ := s.snapshot()
	type asked struct {
		dir     string
		devices []*device
	}
	var all []asked
	for _, r := range request.ContainerRequests {
		if r == nil || len(r.DevicesIds) == 0 {
			return nil, invalid("Allocate: resource %s: a container without device IDs", s.resource)
		}
		devices, unknown := snapshot.named(r.DevicesIds)
		if len(unknown) > 0 {
			return nil, s.unknown("Allocate", unknown)
		}
		all = append(all, asked{s.directories.path(s.resource, r.DevicesIds), devices})
	}
	// Nothing is made for a request that is refused.
	out := &pluginapi.AllocateResponse{}
	for _, a := range all {
		if err := s.directories.renew(a.dir); err != nil {
			return nil, status.Errorf(codes.Internal, "Allocate: resource %s: the allocation's directory: %v: look at the file system's space and permissions", s.resource, err)
		}
		out.ContainerResponses = append(out.ContainerResponses, snapshot.allocate(s.resource, a.dir, a.devices))
	}
	return out, nil
}

// PreStartContainer asks the gate, and waits for its answer.
func (s *service) PreStartContainer(ctx context.Context, request *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	if len(request.DevicesIds) == 0 {
		return nil, invalid("PreStartContainer: resource %s: no device IDs", s.resource)
	}
	ids := slices.Compact(slices.Sorted(slices.Values(request.DevicesIds)))
	allocation := Allocation{Resource: s.resource, DeviceIDs: ids, Dir: s.directories.path(s.resource, ids)}
	snapshot, _ := s.snapshot()
	devices, unknown := snapshot.named(ids)
	// A container may start again after its device, or its slot, has gone from
	// the configuration; that it once was allocated its directory tells.
	if len(unknown) > 0 && !s.directories.exists(allocation.Dir) {
		return nil, s.unknown("PreStartContainer", unknown)
	}
	if err := s.directories.ensure(allocation.Dir); err != nil {
		return nil, status.Errorf(codes.Internal, "resource %s: the allocation's directory: %v", s.resource, err)
	}
	for _, d := range devices {
		if len(d.nodes) > 0 {
			allocation.Devices = append(allocation.Devices, d.name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.preStartTimeout)
	defer cancel()
	if err := s.gate.PreStart(ctx, allocation); err != nil {
		return nil, gateError(s.resource, err)
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// gateError keeps a status that the gate gave.
func gateError(resource string, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.FailedPrecondition
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Error(code, fmt.Sprintf("resource %s: %v", resource, err))
}

func (s *server) unknown(call string, ids []string) error {
	return status.Errorf(codes.NotFound, "%s: resource %s has no device ID %.80q (%d unknown in all): the device has gone, or the configuration has changed; delete the pod, so that it gets another",
		call, s.resource, ids[0], len(ids))
}

// name is the resource's without its prefix.
func (s *server) name() string { return path.Base(s.resource) }

// streams counts the ListAndWatch streams on one socket.
type streams struct {
	closing chan struct{} // closed when the socket is about to be

	mu    sync.Mutex
	count int
	begun chan struct{} // closed when the first has begun
	ended chan struct{} // closed when none is left of those that had begun
}

func newStreams() *streams {
	return &streams{closing: make(chan struct{}), begun: make(chan struct{}), ended: make(chan struct{})}
}

func (s *streams) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count++; !isClosed(s.begun) {
		close(s.begun)
	}
}

func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count--; s.count == 0 && !isClosed(s.ended) {
		close(s.ended)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
