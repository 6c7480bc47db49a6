package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// running is a world with a plugin that kubelet has the resources of.
func running(t *testing.T, w *world, resources ...string) (*kubelet, *Plugin) {
	t.Helper()
	k := startKubelet(t, w.root, false)
	p, _ := w.start()
	for _, resource := range append(resources, GateResource) {
		wait(t, resource+" is registered", func() bool { return len(k.endpoints(resource)) == 1 && k.allocatable(resource) > 0 })
	}
	return k, p
}

func allocate(ids ...string) *pluginapi.AllocateRequest {
	return &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}}
}

// ignoreInternals leaves out what messages keep for themselves.
var ignoreInternals = cmpopts.IgnoreUnexported(pluginapi.AllocateResponse{}, pluginapi.ContainerAllocateResponse{},
	pluginapi.Mount{}, pluginapi.DeviceSpec{}, pluginapi.CDIDevice{}, pluginapi.Device{}, pluginapi.TopologyInfo{}, pluginapi.NUMANode{})

func spec(node string) *pluginapi.DeviceSpec {
	return &pluginapi.DeviceSpec{ContainerPath: "/dev/infiniband/" + node, HostPath: "/dev/infiniband/" + node, Permissions: "rw"}
}

func TestAllocate(t *testing.T) {
	w := newWorld(t)
	w.addNode("rdma_cm")
	w.configure(`{"configList": [
		{"resourceName": "plain", "selectors": {"rdmaDevices": ["rxe0"]}},
		{"resourceName": "all", "exposeRDMACM": true, "selectors": {"rdmaDevices": ["rxe1"]}}]}`)
	k, p := running(t, w, "rdma/plain", "rdma/all")
	for _, tt := range []struct {
		resource, path string
		ids            []string
		nodes          []*pluginapi.DeviceSpec
	}{
		{"rdma/plain", "plain", []string{"rxe0-3"}, []*pluginapi.DeviceSpec{spec("uverbs0")}},
		{"rdma/plain", "plain", []string{"rxe0-7", "rxe0-3", "rxe0-5"}, []*pluginapi.DeviceSpec{spec("uverbs0")}},
		{"rdma/all", "all", []string{"rxe1-0", "rxe1-1"}, []*pluginapi.DeviceSpec{spec("uverbs1"), spec("rdma_cm")}},
		{GateResource, "gate", []string{"gate-999"}, nil},
	} {
		got, err := k.api(tt.resource).Allocate(t.Context(), allocate(tt.ids...))
		if err != nil {
			t.Errorf("%s %v: %v", tt.resource, tt.ids, err)
			continue
		}
		dir := p.AllocationDir(tt.resource, tt.ids)
		want := &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
			Devices:     tt.nodes,
			Mounts:      []*pluginapi.Mount{{ContainerPath: "/run/rdma-multicast/" + tt.path, HostPath: dir, ReadOnly: true}},
			Annotations: map[string]string{"allocation.rdma-multicast.dev/" + tt.path: filepath.Base(dir)},
		}}}
		if diff := cmp.Diff(want, got, ignoreInternals); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", tt.resource, tt.ids, diff)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode() != fs.ModeDir|0o755 {
			t.Errorf("the allocation's directory: %v, %v", info, err)
		}
	}
	if info, err := os.Stat(w.options.StateDir); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the folder of all allocations: %v, %v", info.Mode(), err)
	}
}

func TestAllocationDir(t *testing.T) {
	p, err := New(newWorld(t).options)
	if err != nil {
		t.Fatal(err)
	}
	same := p.AllocationDir("rdma/a", []string{"x-1", "x-10", "x-2"})
	if other := p.AllocationDir("rdma/a", []string{"x-2", "x-1", "x-10"}); other != same {
		t.Errorf("the order matters: %s, %s", same, other)
	}
	seen := map[string]bool{same: true}
	for _, other := range []string{
		p.AllocationDir("rdma/b", []string{"x-1", "x-10", "x-2"}),
		p.AllocationDir("rdma/a", []string{"x-1", "x-10"}),
		p.AllocationDir("rdma/a", []string{"x-1\nx-10", "x-2", "x-3"}),
		p.AllocationDir("rdma/a", nil),
	} {
		if seen[other] || filepath.Dir(other) != p.options.StateDir {
			t.Errorf("%s is another allocation's, or elsewhere", other)
		}
		seen[other] = true
	}
}

// The next pod with the same slots has an empty directory, and the one before,
// which may still have the old one mounted, doesn't see into it.
func TestAllocateRenewsTheDirectory(t *testing.T) {
	w := newWorld(t)
	k, p := running(t, w, nic)
	dir := p.AllocationDir(nic, []string{"rxe0-0"})
	if _, err := k.api(nic).Allocate(t.Context(), allocate("rxe0-0")); err != nil {
		t.Fatal(err)
	}
	mounted, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer mounted.Close()
	if err := os.WriteFile(filepath.Join(dir, "groups.json"), []byte("{}"), 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := k.api(nic).Allocate(t.Context(), allocate("rxe0-0")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("the new pod's directory: %v, %v", entries, err)
	}
	before, err := mounted.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(dir); err != nil || os.SameFile(before, after) {
		t.Errorf("the old pod's directory is the new one's: %v", err)
	}
}

func TestRetainAllocations(t *testing.T) {
	w := newWorld(t)
	k, p := running(t, w, nic)
	var dirs []string
	for i := range 3 {
		id := fmt.Sprintf("rxe0-%d", i)
		if _, err := k.api(nic).Allocate(t.Context(), allocate(id)); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, p.AllocationDir(nic, []string{id}))
	}
	none := func(string) bool { return false }
	if err := p.RetainAllocations(time.Hour, none); err != nil {
		t.Fatal(err)
	}
	left := func(want ...string) {
		t.Helper()
		got, err := filepath.Glob(filepath.Join(w.options.StateDir, "*"))
		if diff := cmp.Diff(len(want), len(got)); err != nil || diff != "" {
			t.Fatalf("left %v, want %v", got, want)
		}
		for _, path := range want {
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
	}
	file := filepath.Join(w.options.StateDir, "interfaces.json")
	left(append(dirs, file)...)
	if err := p.RetainAllocations(0, func(dir string) bool { return dir == dirs[1] }); err != nil {
		t.Fatal(err)
	}
	left(dirs[1], file)
}

func TestPreStartContainer(t *testing.T) {
	w := newWorld(t)
	k, p := running(t, w, nic)
	ids := []string{"rxe1-4", "rxe0-2", "rxe0-2"}
	if _, err := k.api(nic).PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.api(GateResource).PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{"gate-1"}}); err != nil {
		t.Fatal(err)
	}
	want := []Allocation{
		{Resource: nic, DeviceIDs: []string{"rxe0-2", "rxe1-4"}, Devices: []string{"rxe0", "rxe1"}, Dir: p.AllocationDir(nic, ids)},
		{Resource: GateResource, DeviceIDs: []string{"gate-1"}, Dir: p.AllocationDir(GateResource, []string{"gate-1"})},
	}
	if diff := cmp.Diff(want, w.starts); diff != "" {
		t.Errorf("the gate was asked for (-want +got):\n%s", diff)
	}
	for _, a := range w.starts {
		if _, err := os.Stat(a.Dir); err != nil {
			t.Error(err)
		}
	}
}

// A container starts again although its device has gone: the gate decides.
func TestPreStartContainerOfAGoneDevice(t *testing.T) {
	w := newWorld(t)
	k, p := running(t, w, nic)
	if _, err := k.api(nic).Allocate(t.Context(), allocate("rxe1-0")); err != nil {
		t.Fatal(err)
	}
	w.node.RemoveDevice("rxe1")
	wait(t, "rxe1 has gone", func() bool { return k.capacity(nic) == 1000 })
	if err := preStart(t, k.api(nic), "rxe1-0"); err != nil {
		t.Error(err)
	}
	want := []Allocation{{Resource: nic, DeviceIDs: []string{"rxe1-0"}, Dir: p.AllocationDir(nic, []string{"rxe1-0"})}}
	if diff := cmp.Diff(want, w.starts); diff != "" {
		t.Errorf("the gate was asked for (-want +got):\n%s", diff)
	}
}

func TestPreStartContainerFails(t *testing.T) {
	w := newWorld(t)
	w.options.PreStartTimeout = 50 * time.Millisecond
	k, _ := running(t, w, nic)
	for _, tt := range []struct {
		name string
		gate func(context.Context, Allocation) error
		code codes.Code
		text string
	}{
		{"the gate's reason", func(context.Context, Allocation) error {
			return errors.New("group a/b on net1: ENETRESET")
		}, codes.FailedPrecondition, "resource rdma-multicast.dev/nic: group a/b on net1: ENETRESET"},
		{"too late", func(ctx context.Context, _ Allocation) error {
			<-ctx.Done()
			return fmt.Errorf("group a/b: not joined: %w", ctx.Err())
		}, codes.DeadlineExceeded, "group a/b: not joined"},
		{"a status", func(context.Context, Allocation) error {
			return status.Error(codes.Unavailable, "no sandbox yet")
		}, codes.Unavailable, "no sandbox yet"},
	} {
		w.setGate(tt.gate)
		_, err := k.api(nic).PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{"rxe0-0"}})
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// One start that waits holds up neither others nor an allocation.
func TestAllocateDoesNotWait(t *testing.T) {
	w := newWorld(t)
	k, _ := running(t, w, nic)
	entered, release := make(chan struct{}), make(chan struct{})
	w.setGate(func(_ context.Context, a Allocation) error {
		if a.DeviceIDs[0] == "rxe0-0" {
			close(entered)
			<-release
		}
		return nil
	})
	first := make(chan error, 1)
	prestart := func(id string) error {
		_, err := k.api(nic).PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{id}})
		return err
	}
	go func() { first <- prestart("rxe0-0") }()
	<-entered
	if err := prestart("rxe0-1"); err != nil {
		t.Error(err)
	}
	if _, err := k.api(nic).Allocate(t.Context(), allocate("rxe0-0")); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestBadRequests(t *testing.T) {
	w := newWorld(t)
	k, p := running(t, w, nic)
	api := k.api(nic)
	var many, unknown []string
	for i := range 10000 {
		many = append(many, fmt.Sprintf("rxe%d-%d", i%2, i/2%1000))
		unknown = append(unknown, fmt.Sprintf("rxe7-%d", i))
	}
	long := strings.Repeat("x", 1<<20)
	for name, tt := range map[string]struct {
		call func() error
		code codes.Code
		text string
	}{
		"no IDs": {func() error { _, err := api.Allocate(t.Context(), allocate()); return err },
			codes.InvalidArgument, "resource rdma-multicast.dev/nic: a container without device IDs"},
		"another resource's ID": {func() error { _, err := api.Allocate(t.Context(), allocate("rxe0-0", "gate-0")); return err },
			codes.NotFound, `resource rdma-multicast.dev/nic has no device ID "gate-0" (1 unknown in all)`},
		"10,000 unknown": {func() error { _, err := api.Allocate(t.Context(), allocate(unknown...)); return err },
			codes.NotFound, `"rxe7-0" (10000 unknown in all)`},
		"a path": {func() error { _, err := api.Allocate(t.Context(), allocate("../../etc")); return err },
			codes.NotFound, "../../etc"},
		"a long ID": {func() error { _, err := api.Allocate(t.Context(), allocate(long)); return err },
			codes.NotFound, "delete the pod"},
		"start without IDs": {func() error {
			_, err := api.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{})
			return err
		}, codes.InvalidArgument, "no device IDs"},
		"start of unknown": {func() error {
			_, err := api.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: []string{"rxe0-1000"}})
			return err
		}, codes.NotFound, `PreStartContainer: resource rdma-multicast.dev/nic has no device ID "rxe0-1000"`},
	} {
		err := tt.call()
		if status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.text) || len(err.Error()) > 512 {
			t.Errorf("%s: %.600v", name, err)
		}
	}
	if entries, err := filepath.Glob(filepath.Join(w.options.StateDir, strings.Repeat("?", 32))); err != nil || len(entries) > 0 {
		t.Errorf("refused requests left %v, %v", entries, err)
	}
	if len(w.starts) > 0 {
		t.Errorf("the gate was asked: %v", w.starts)
	}

	got, err := api.Allocate(t.Context(), allocate(many...))
	if err != nil || len(got.ContainerResponses[0].Devices) != 2 {
		t.Errorf("10,000 IDs of two devices: %v, %v", got, err)
	}
	preferred, err := api.GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: many, AllocationSize: 3}}})
	if err != nil || len(preferred.ContainerResponses[0].DeviceIDs) != 3 {
		t.Errorf("advice on 10,000: %v, %v", preferred, err)
	}
	if _, err := api.Allocate(t.Context(), &pluginapi.AllocateRequest{}); err != nil {
		t.Errorf("no containers: %v", err)
	}
	// Served as before.
	if _, err := api.Allocate(t.Context(), allocate("rxe0-0")); err != nil || !registered(p) {
		t.Error(err)
	}
}

// waitForever is a gate that answers when it has to.
func waitForever(entered chan<- struct{}) func(context.Context, Allocation) error {
	return func(ctx context.Context, _ Allocation) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}
}

func preStart(t *testing.T, api pluginapi.DevicePluginClient, ids ...string) error {
	_, err := api.PreStartContainer(t.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	return err
}
