package deviceplugin

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// From a plugin's start to kubelet having 1,000 devices of a resource.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	for i := range 998 {
		w.node.AddNIC(fmt.Sprintf("dev%d", i), fmt.Sprintf("port%d", i), netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32))
	}
	w.configure(`{"configList": [{"resourceName": "a", "rdmaHcaMax": 1}]}`)
	k := startKubelet(b, w.root, false)
	for b.Loop() {
		_, stop := w.start()
		wait(b, "in full", func() bool { return k.allocatable("rdma/a") == 1000 })
		b.StopTimer()
		stop()
		wait(b, "gone", func() bool { return len(k.endpoints("rdma/a")) == 0 })
		b.StartTimer()
	}
}

func benchmarkServer(b *testing.B) *service {
	w := newWorld(b)
	var devices []device
	for i := range 8 {
		name := fmt.Sprintf("mlx5_%d", i)
		devices = append(devices, device{name: name, numa: i / 4, nodes: []string{"uverbs" + name}, slots: slotIDs(name, DefaultSlots)})
	}
	s := newServer(nic, &w.options, &directories{root: w.options.StateDir}, newSnapshot(devices, nil, false))
	return &service{server: s, streams: newStreams()}
}

func BenchmarkAllocate(b *testing.B) {
	s := benchmarkServer(b)
	request := allocate("mlx5_0-0", "mlx5_7-999")
	for b.Loop() {
		if _, err := s.Allocate(context.Background(), request); err != nil {
			b.Fatal(err)
		}
	}
}

// Of 8,000 free slots.
func BenchmarkGetPreferredAllocation(b *testing.B) {
	s := benchmarkServer(b)
	snapshot, _ := s.snapshot()
	request := &pluginapi.PreferredAllocationRequest{ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: except(snapshot), AllocationSize: 2},
	}}
	for b.Loop() {
		if _, err := s.GetPreferredAllocation(context.Background(), request); err != nil {
			b.Fatal(err)
		}
	}
}
