package membership

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// BenchmarkMemory is what a full node's memberships take: 110 pods with 16
// groups each, the simulated kernel's part included.
func BenchmarkMemory(b *testing.B) {
	const pods, groups = 110, 16
	node := rdmatest.NewFabric().AddNode("node-1")
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.1/16"))
	var wanted []Wanted
	for p := range pods {
		path := fmt.Sprintf("/run/netns/%d", p)
		addr := netip.AddrFrom4([4]byte{10, 0, 1, byte(p)})
		node.AddNetNS(path)
		node.AddMACVLAN(path, "net1", "rdma0", netip.PrefixFrom(addr, 16))
		for g := range groups {
			wanted = append(wanted, want(fmt.Sprint(g), fmt.Sprintf("239.1.1.%d", g), func(w *Wanted) {
				w.Scope, w.NetNS, w.BindAddr = path, path, addr
			}))
		}
	}
	var heap, stacks, goroutines uint64
	for b.Loop() {
		heap0, stacks0 := memory()
		routines0 := runtime.NumGoroutine()
		table := NewTable(TableOptions{Host: node.Host(), Protocol: &protocol{node: node}})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- table.Run(ctx) }()
		table.Apply(wanted)
		for !allJoined(table) {
			time.Sleep(time.Millisecond)
		}
		heap1, stacks1 := memory()
		heap, stacks, goroutines = heap1-heap0, stacks1-stacks0, uint64(runtime.NumGoroutine()-routines0)
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap)/pods/groups, "heap-B/membership")
	b.ReportMetric(float64(stacks)/pods/groups, "stack-B/membership")
	b.ReportMetric(float64(goroutines)/pods/groups, "goroutines/membership")
}

func allJoined(t *Table) bool {
	for _, s := range t.Snapshot() {
		if s.State != Joined {
			return false
		}
	}
	return true
}

func memory() (heap, stacks uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

// BenchmarkPlan is one planning of a full node: 110 pods with 16 groups each.
func BenchmarkPlan(b *testing.B) {
	const pods, number = 110, 16
	var groups []Group
	var requests []Request
	for g := range number {
		name := fmt.Sprint("g", g)
		groups = append(groups, testGroup(name, at(fmt.Sprintf("239.1.1.%d", g+1))))
		requests = append(requests, ask(name))
	}
	interfaces := map[string]Interfaces{NodeScope: ifaces(roce("rdma0", "rxe0", "192.168.0.1/24"))}
	var live []Pod
	for p := range pods {
		name := fmt.Sprint(p)
		live = append(live, pod(name, requests...))
		interfaces["s-"+name] = ifaces(roce("net1", "rxe0", "10.0.0.2/24"), "eth0")
	}
	for b.Loop() {
		if wanted, _ := Plan(groups, live, Node{}, interfaces, Limits{PerPod: 64, PerNode: 4096}); len(wanted) != pods*number {
			b.Fatalf("%d wanted", len(wanted))
		}
	}
}
