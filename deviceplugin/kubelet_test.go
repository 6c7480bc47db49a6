package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// wait looks until a condition holds.
func wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// kubeletRoot is a short folder: a socket's path has 107 bytes at most.
func kubeletRoot(t testing.TB) string {
	t.Helper()
	root, err := os.MkdirTemp("", "kl") //nolint:usetesting // t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Mkdir(filepath.Join(root, "device-plugins"), 0o750); err != nil {
		t.Fatal(err)
	}
	return root
}

// kubelet stands in for kubelet's device manager: what it does with
// registrations, and what becomes of them when a plugin goes.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	t   testing.TB
	dir string
	// byName: as before 1.37, when an endpoint that leaves takes the newest one of
	// its resource with it.
	byName bool

	server *grpc.Server
	served chan struct{}
	run    sync.WaitGroup

	mu            sync.Mutex
	plugins       map[string][]*plugin // by resource, the newest last
	conns         []*grpc.ClientConn
	devices       map[string][]*pluginapi.Device
	registrations map[string]int
	lists         map[string]int
	refuse        error
	silent        bool // takes registrations, and watches nothing
}

// plugin is an endpoint that kubelet is connected to.
type plugin struct {
	endpoint string
	conn     *grpc.ClientConn
	api      pluginapi.DevicePluginClient
}

// startKubelet empties the folder of sockets, as kubelet does, and serves.
func startKubelet(t testing.TB, root string, byName bool) *kubelet {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(root, "device-plugins", "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
			t.Fatal(err) // a plugin removes its own meanwhile
		}
	}
	return serveKubelet(t, root, byName)
}

func serveKubelet(t testing.TB, root string, byName bool) *kubelet {
	t.Helper()
	k := &kubelet{
		t: t, dir: filepath.Join(root, "device-plugins"), byName: byName, served: make(chan struct{}),
		plugins: map[string][]*plugin{}, devices: map[string][]*pluginapi.Device{},
		registrations: map[string]int{}, lists: map[string]int{},
	}
	listener, err := net.Listen("unix", filepath.Join(k.dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer(grpc.WaitForHandlers(true))
	pluginapi.RegisterRegistrationServer(k.server, k)
	go func() {
		defer close(k.served)
		if err := k.server.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(k.stop)
	return k
}

// stop ends kubelet, as its process does.
func (k *kubelet) stop() {
	k.server.Stop()
	<-k.served
	k.mu.Lock()
	for _, conn := range k.conns {
		_ = conn.Close()
	}
	k.plugins = map[string][]*plugin{}
	k.mu.Unlock()
	k.run.Wait()
}

// sockets are those in the folder.
func (k *kubelet) sockets() []string {
	paths, err := filepath.Glob(filepath.Join(k.dir, "*.sock"))
	if err != nil {
		k.t.Error(err)
	}
	return paths
}

func dial(t testing.TB, socket string) *grpc.ClientConn {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (k *kubelet) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.mu.Lock()
	refuse := k.refuse
	k.mu.Unlock()
	if refuse != nil {
		return nil, refuse
	}
	if r.Version != pluginapi.Version || filepath.Base(r.Endpoint) != r.Endpoint {
		return nil, fmt.Errorf("version %s, endpoint %s", r.Version, r.Endpoint)
	}
	p := &plugin{endpoint: r.Endpoint, conn: dial(k.t, filepath.Join(k.dir, r.Endpoint))}
	p.api = pluginapi.NewDevicePluginClient(p.conn)
	options, err := p.api.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil || !options.PreStartRequired || !options.GetPreferredAllocationAvailable {
		return nil, errors.Join(fmt.Errorf("options %v: %w", options, err), p.conn.Close())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, known := range k.plugins[r.ResourceName] {
		if known.endpoint == r.Endpoint {
			_ = p.conn.Close()
			return nil, fmt.Errorf("device plugin already connected: %s", r.Endpoint)
		}
	}
	k.registrations[r.ResourceName]++
	if k.silent {
		return &pluginapi.Empty{}, p.conn.Close()
	}
	k.conns = append(k.conns, p.conn)
	if k.byName {
		k.plugins[r.ResourceName] = nil // the one before is still watched
	}
	k.plugins[r.ResourceName] = append(k.plugins[r.ResourceName], p)
	k.run.Go(func() {
		k.watch(r.ResourceName, p)
		k.disconnect(r.ResourceName, p)
	})
	return &pluginapi.Empty{}, nil
}

// watch takes in the lists of an endpoint until it ends.
func (k *kubelet) watch(resource string, p *plugin) {
	stream, err := p.api.ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		return
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return
		}
		k.mu.Lock()
		k.devices[resource] = response.Devices
		k.lists[resource]++
		k.mu.Unlock()
	}
}

// disconnect is what follows the end of an endpoint's list.
func (k *kubelet) disconnect(resource string, p *plugin) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = p.conn.Close()
	list := k.plugins[resource]
	if k.byName && len(list) > 0 {
		p = list[0] // whichever it is that has the name
		_ = p.conn.Close()
	}
	if i := slices.Index(list, p); i >= 0 {
		k.plugins[resource] = slices.Delete(slices.Clone(list), i, i+1)
	}
	if len(k.plugins[resource]) == 0 {
		delete(k.devices, resource)
	}
}

// allocatable counts the healthy devices of a resource that has an endpoint.
func (k *kubelet) allocatable(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, d := range k.devices[resource] {
		if d.Health == pluginapi.Healthy {
			n++
		}
	}
	return n
}

// capacity counts the devices of a resource, healthy or not.
func (k *kubelet) capacity(resource string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.devices[resource])
}

// count is how many registrations of a resource there were, and lists.
func (k *kubelet) count(resource string) (registrations, lists int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registrations[resource], k.lists[resource]
}

// endpoints are those of a resource that kubelet is connected to.
func (k *kubelet) endpoints(resource string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, p := range k.plugins[resource] {
		out = append(out, p.endpoint)
	}
	return out
}

// api is the newest endpoint of a resource.
func (k *kubelet) api(resource string) pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.plugins[resource]
	if len(list) == 0 {
		k.t.Fatalf("%s has no endpoint", resource)
	}
	return list[len(list)-1].api
}

func (k *kubelet) setSilent(silent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.silent = silent
}

func (k *kubelet) setRefuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = err
}
