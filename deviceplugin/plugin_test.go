package deviceplugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func TestNewRefuses(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*Options){
		"a Host and a Gate": func(o *Options) { o.Gate = nil },
		"absolute path":     func(o *Options) { o.StateDir = "allocations" },
		"not 31s":           func(o *Options) { o.PreStartTimeout = 31e9 },
	} {
		o := w.options
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunWithoutAFolderForAllocations(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.options.StateDir = filepath.Join(file, "allocations")
	p, err := New(w.options)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "folder of allocations") {
		t.Errorf("Run: %v", err)
	}
}

// The devices' health follows their ports, both ways; devices come and go.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	k, p := running(t, w, nic)
	w.node.SetPortLink("rxe0", false)
	wait(t, "rxe0 is unhealthy", func() bool { return k.allocatable(nic) == 1000 && k.capacity(nic) == 2000 })
	if r := p.Resources(); r[1].Name != nic || r[1].Healthy != 1000 || r[1].Slots != 2000 {
		t.Errorf("%+v", r)
	}
	w.node.SetPortLink("rxe0", true)
	wait(t, "rxe0 is healthy", func() bool { return k.allocatable(nic) == 2000 })
	w.node.RemoveDevice("rxe1")
	wait(t, "rxe1 has gone", func() bool { return k.allocatable(nic) == 1000 && k.capacity(nic) == 1000 })
	w.node.AddDevice("rxe1", "eth1")
	wait(t, "rxe1 is back", func() bool { return k.allocatable(nic) == 2000 })
	if registrations, _ := k.count(nic); registrations != 1 {
		t.Errorf("%d registrations, want one", registrations)
	}
	if _, lists := k.count(GateResource); lists != 1 {
		t.Errorf("the gate's list was sent %d times, and never changed", lists)
	}
}

// Every new stream begins with the whole list, and all of them are told.
func TestSeveralStreams(t *testing.T) {
	w := newWorld(t)
	k, _ := running(t, w, nic)
	var streams []pluginapi.DevicePlugin_ListAndWatchClient
	for range 3 {
		stream, err := k.api(nic).ListAndWatch(t.Context(), &pluginapi.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil || len(first.Devices) != 2000 {
			t.Fatalf("the first list has %d devices, %v", len(first.GetDevices()), err)
		}
		streams = append(streams, stream)
	}
	w.node.RemoveDevice("rxe1")
	for _, stream := range streams {
		next, err := stream.Recv()
		if err != nil || len(next.Devices) != 1000 {
			t.Errorf("the next list has %d devices, %v", len(next.GetDevices()), err)
		}
	}
	if registrations, _ := k.count(nic); registrations != 1 {
		t.Errorf("%d registrations, want one", registrations)
	}
}

func TestTopologyIsListed(t *testing.T) {
	s := newSnapshot([]device{{name: "a", numa: -1, slots: []string{"a-0"}}, {name: "b", numa: 0, slots: []string{"b-0"}, unhealthy: "x"}}, nil, false)
	want := []*pluginapi.Device{
		{ID: "a-0", Health: "Healthy"},
		{ID: "b-0", Health: "Unhealthy", Topology: &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: 0}}}},
	}
	if diff := cmp.Diff(want, s.list, ignoreInternals); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if !s.sameList(newSnapshot(slices.Clone(s.devices), []string{"rdma_cm"}, true)) {
		t.Error("kubelet is told of what it can't see")
	}
	for name, change := range map[string]func([]device){
		"NUMA node": func(d []device) { d[0].numa = 1 },
		"health":    func(d []device) { d[1].unhealthy = "" },
		"slots":     func(d []device) { d[1].slots = []string{"b-0", "b-1"} },
	} {
		devices := slices.Clone(s.devices)
		if change(devices); s.sameList(newSnapshot(devices, nil, false)) {
			t.Errorf("kubelet isn't told of a change of %s", name)
		}
	}
}

// As many slots as a resource may have, with IDs as long as they may be.
func TestALongList(t *testing.T) {
	w := newWorld(t)
	w.configure(`{"configList": [{"resourceName": "long", "rdmaHcaMax": 10000, "selectors": {"rdmaDevices": ["x*"]}}]}`)
	for i := range 4 {
		w.node.AddNIC(fmt.Sprintf("x%060d", i), fmt.Sprintf("long%d", i), netip.MustParsePrefix(fmt.Sprintf("10.1.%d.1/24", i)))
	}
	k, _ := running(t, w, "rdma/long")
	if got, want := k.allocatable("rdma/long"), 32768; got != want {
		t.Errorf("%d slots, want %d", got, want)
	}
	if !w.hasProblem("resource rdma/long: 4 devices of 10000 slots each", "each has 8192") {
		t.Errorf("not told: %v", w.problems)
	}
}

// A device whose interface was moved into a pod is in use, not gone: also for
// an agent that is started while it is there.
func TestInterfaceMovedIntoAPod(t *testing.T) {
	w := newWorld(t)
	subnet := w.fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
	w.node.AddHCA(subnet, "mlx5_0", "") // its interface isn't on the node
	devices, err := w.node.Host().Devices(nil)
	if err != nil {
		t.Fatal(err)
	}
	before := devices[0]
	if before.Name != "mlx5_0" || len(before.Ports[0].Interfaces) > 0 {
		t.Fatalf("devices %+v", devices)
	}
	before.Ports[0].Interfaces = []string{"ib7"}
	if err := os.MkdirAll(w.options.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := openMoved(filepath.Join(w.options.StateDir, "interfaces.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.update([]rdma.Device{before}); err != nil {
		t.Fatal(err)
	}
	w.configure(`{"configList": [{"resourceName": "a", "devices": ["ib*"]}]}`)
	k, _ := running(t, w, "rdma/a")
	w.node.RemoveDevice("rxe0") // cause for another look
	w.configure(`{"configList": [{"resourceName": "a", "devices": ["ib7"], "rdmaHcaMax": 5}]}`)
	wait(t, "still listed", func() bool { return k.allocatable("rdma/a") == 5 })
	w.node.RemoveDevice("mlx5_0")
	wait(t, "gone with the device", func() bool { return k.capacity("rdma/a") == 0 })
}

func TestMissingNodes(t *testing.T) {
	w := newWorld(t)
	w.configure(`{"configList": [
		{"resourceName": "cm", "selectors": {"rdmaDevices": ["rxe0"]}, "exposeRDMACM": true},
		{"resourceName": "umad", "selectors": {"rdmaDevices": ["rxe1"]}, "exposeUMAD": true}]}`)
	k, _ := running(t, w, "rdma/umad") // has none, and needs none
	wait(t, "rdma_cm is told missing", func() bool {
		return k.capacity("rdma/cm") == 1000 && k.allocatable("rdma/cm") == 0 &&
			w.hasProblem("resource rdma/cm: exposeRDMACM", "load the kernel module rdma_ucm")
	})
	if n := w.problemCount(); n != 1 {
		t.Errorf("%d problems: %v", n, w.problems)
	}
	w.addNode("rdma_cm") // the module is loaded
	wait(t, "rdma_cm is noticed", func() bool { return k.allocatable("rdma/cm") == 1000 && w.problemCount() == 0 })
}

// What nothing tells of is seen at the next periodic look.
func TestPeriodicUpdate(t *testing.T) {
	w := newWorld(t)
	w.addAttribute("class/infiniband/rxe0/device/uevent", "DRIVER=mlx5_core\nPCI_ID=15B3:1017\nPCI_SLOT_NAME=0000:3b:00.0\n")
	w.configure(`{"periodicUpdateInterval": 1, "configList": [{"resourceName": "a", "exposeUMAD": true, "selectors": {"vendors": ["15b3"]}}]}`)
	k, _ := running(t, w, "rdma/a")
	w.addAttribute("class/infiniband_mad/umad3/ibdev", "rxe0\n")
	wait(t, "the umad node is handed out", func() bool {
		got, err := k.api("rdma/a").Allocate(t.Context(), allocate("rxe0-0"))
		if err != nil {
			t.Fatal(err)
		}
		nodes := got.ContainerResponses[0].Devices
		return len(nodes) == 2 && nodes[0].HostPath == "/dev/infiniband/uverbs0" && nodes[1].HostPath == "/dev/infiniband/umad3"
	})
	w.addAttribute("class/infiniband/rxe1/device/uevent", "PCI_ID=15B3:1018\n")
	wait(t, "the other device, too", func() bool { return k.allocatable("rdma/a") == 2000 })
}

func TestNoUVerbs(t *testing.T) {
	without := softRoCE("rxe0")
	without.UVerbs, without.NodeGUID = "", ""
	devices, problems := resourceDevices(&Resource{ResourceName: "a", RDMAHCAMax: ptr(1)}, []hostDevice{without, softRoCE("rxe1")}, nil)
	s := newSnapshot(devices, nil, false)
	if s.list[0].Health != "Unhealthy" || s.list[1].Health != "Healthy" {
		t.Errorf("health: %v", s.list)
	}
	if len(problems) != 1 || !strings.Contains(problems[0].String(), "resource rdma/a: device rxe0: has no uverbs node: load the kernel module ib_uverbs") {
		t.Errorf("problems %v", problems)
	}
}

func TestCDI(t *testing.T) {
	w := newWorld(t)
	w.addNode("rdma_cm")
	if err := os.MkdirAll(w.options.CDIDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rdma-multicast-rdma_old.json", "vendor.json"} {
		if err := os.WriteFile(filepath.Join(w.options.CDIDir, name), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.configure(`{"configList": [{"resourceName": "a", "cdi": true, "exposeRDMACM": true}]}`)
	k, _ := running(t, w, "rdma/a")
	got, err := k.api("rdma/a").Allocate(t.Context(), allocate("rxe1-0", "rxe0-0", "rxe0-1"))
	if err != nil {
		t.Fatal(err)
	}
	c := got.ContainerResponses[0]
	want := []*pluginapi.CDIDevice{{Name: "rdma/a=rxe0"}, {Name: "rdma/a=rxe1"}}
	if diff := cmp.Diff(want, c.CdiDevices, ignoreInternals); diff != "" || len(c.Devices) > 0 || len(c.Mounts) != 1 {
		t.Errorf("CDI devices (-want +got), nodes %v, mounts %v:\n%s", c.Devices, c.Mounts, diff)
	}
	type m = map[string]any
	node := func(name string) m {
		return m{"deviceNodes": []any{m{"path": "/dev/infiniband/" + name, "permissions": "rw"}}}
	}
	text, err := os.ReadFile(filepath.Join(w.options.CDIDir, "rdma-multicast-rdma_a.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec m
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	wantSpec := m{"cdiVersion": "0.6.0", "kind": "rdma/a", "containerEdits": node("rdma_cm"), "devices": []any{
		m{"name": "rxe0", "containerEdits": node("uverbs0")}, m{"name": "rxe1", "containerEdits": node("uverbs1")},
	}}
	if diff := cmp.Diff(wantSpec, spec); diff != "" {
		t.Errorf("CDI file (-want +got):\n%s", diff)
	}
	files := func() string {
		names, err := filepath.Glob(filepath.Join(w.options.CDIDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		return strings.Join(names, " ")
	}
	if got := files(); got != "rdma-multicast-rdma_a.json vendor.json" {
		t.Errorf("CDI files %s", got)
	}
	w.configure(`{"configList": [{"resourceName": "a"}]}`)
	wait(t, "the file has gone", func() bool { return files() == "vendor.json" })
	if got, err = k.api("rdma/a").Allocate(t.Context(), allocate("rxe0-0")); err != nil || len(got.ContainerResponses[0].Devices) != 1 {
		t.Errorf("without cdi: %v, %v", got, err)
	}
}

func TestCDIFolderNotWritable(t *testing.T) {
	w := newWorld(t)
	w.options.CDIDir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(w.options.CDIDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.configure(`{"configList": [{"resourceName": "a", "cdi": true}]}`)
	k, _ := running(t, w)
	wait(t, "told", func() bool { return w.hasProblem("resource rdma/a: cdi: ", "set cdi to false") })
	wait(t, "listed as unhealthy", func() bool { return k.capacity("rdma/a") == 2000 && k.allocatable("rdma/a") == 0 })
}
