package rdmatest_test

import (
	"net/netip"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// told reports whether a watch has something, and takes it.
func told(w sys.Watch) bool {
	select {
	case <-w.Changed():
		return true
	default:
		return false
	}
}

func TestWatchesTellOfTheirChangesAlone(t *testing.T) {
	const pod = "/run/netns/pod"
	first, second := netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("10.0.0.9/24")
	node := rdmatest.NewFabric().AddNode("node")
	node.AddNIC("rxe0", "rdma0", first)
	node.AddNetNS(pod)
	kernel := rdmatest.Kernel(node)
	ns, err := kernel.OpenNetNS(pod)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	watch := func(w sys.Watch, err error) sys.Watch {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	host, inPod, devices := watch(kernel.WatchLinks(nil)), watch(kernel.WatchLinks(ns)), watch(kernel.WatchDevices())
	if got := node.OpenWatches(); got != 3 {
		t.Errorf("got %d open watches, want 3", got)
	}
	for _, step := range []struct {
		name                 string
		do                   func()
		host, inPod, devices bool
	}{
		{"nothing", func() {}, false, false, false},
		{"an address", func() { node.AddAddress("", "rdma0", second) }, true, false, true},
		{"an address deleted", func() { node.DeleteAddress("", "rdma0", second) }, true, false, true},
		{"a macvlan", func() { node.AddMACVLAN(pod, "net1", "rdma0", second) }, false, true, true},
		{"a macvlan deleted", func() { node.DeleteInterface(pod, "net1") }, false, true, true},
		{"an interface without RDMA", func() { node.AddPlainInterface("", "eth0") }, true, false, false},
		{"a device removed", func() { node.RemoveDevice("rxe0") }, false, false, true},
		{"a device added", func() { node.AddDevice("rxe0", "rdma0") }, false, false, true},
		{"a namespace deleted", func() { node.DeleteNetNS(pod) }, false, true, false},
	} {
		step.do()
		for w, want := range map[sys.Watch]bool{host: step.host, inPod: step.inPod, devices: step.devices} {
			if got := told(w); got != want {
				t.Errorf("%s: watch of %s told %v, want %v", step.name,
					map[sys.Watch]string{host: "the host", inPod: "the pod", devices: "devices"}[w], got, want)
			}
			if told(w) {
				t.Errorf("%s: told twice", step.name)
			}
		}
	}
	for _, w := range []sys.Watch{host, inPod, devices} {
		for range 2 {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, open := <-w.Changed(); open || w.Err() != nil {
			t.Errorf("after Close: open %v, error %v, want neither", open, w.Err())
		}
	}
	if got := node.OpenWatches(); got != 0 {
		t.Errorf("got %d open watches, want none", got)
	}
}

func TestABoundIDHoldsItsGIDSlot(t *testing.T) {
	addr, other := netip.MustParsePrefix("10.0.0.9/24"), netip.MustParsePrefix("10.0.0.2/24")
	node := rdmatest.NewFabric().AddNode("node")
	node.AddNIC("rxe0", "rdma0", addr, other)
	kernel := rdmatest.Kernel(node)
	cm, err := kernel.OpenCM()
	if err != nil {
		t.Fatal(err)
	}
	defer cm.Close()
	index := func() int {
		t.Helper()
		devices, err := kernel.Devices(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range devices[0].Ports[0].GIDs {
			if g.GID == netip.AddrFrom16(addr.Addr().As16()) {
				return g.Index
			}
		}
		return -1
	}
	again := func() int {
		node.DeleteAddress("", "rdma0", addr)
		if got := index(); got != -1 {
			t.Errorf("deleted, and still at %d", got)
		}
		node.AddAddress("", "rdma0", addr)
		return index()
	}
	if got := again(); got != 1 {
		t.Errorf("nobody bound: got index %d, want 1 again", got)
	}
	id, err := cm.CreateID(nil, 1, sys.PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := cm.Bind(id, addr.Addr()); err != nil {
		t.Fatal(err)
	}
	if got := again(); got != 3 {
		t.Errorf("an id bound: got index %d, want the first free one, 3", got)
	}
	if _, err := cm.Destroy(id); err != nil {
		t.Fatal(err)
	}
	if got := again(); got != 1 {
		t.Errorf("the id destroyed: got index %d, want 1", got)
	}
}
