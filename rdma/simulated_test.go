package rdma_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// nothingLeft fails if the node has memberships, or anything open.
func nothingLeft(t *testing.T, node *rdmatest.Node) {
	t.Helper()
	if got := node.Memberships(); len(got) > 0 {
		t.Errorf("memberships left: %+v", got)
	}
	if files, ids, namespaces := node.OpenHandles(); files+ids+namespaces > 0 {
		t.Errorf("left open: %d files, %d ids, %d namespaces", files, ids, namespaces)
	}
	if n := node.OpenWatches(); n > 0 {
		t.Errorf("%d watches left open", n)
	}
}

var scratch = netip.MustParseAddr("239.255.255.254")

func TestSelfTestLeavesNothing(t *testing.T) {
	beside := netip.MustParseAddr("239.255.255.255")
	roce := func() (*rdmatest.Node, string) { return roceNode(), "rdma0" }
	infiniBand := func() (*rdmatest.Node, string) {
		node, _ := infiniBandNode()
		return node, "ib0"
	}
	for _, tt := range []struct {
		name   string
		node   func() (*rdmatest.Node, string)
		faults []rdmatest.Fault
		want   rdma.Reason // "": it passes
	}{
		{"RoCE", roce, nil, ""},
		{"InfiniBand", infiniBand, nil, ""},
		{"the first join fails", roce, []rdmatest.Fault{{Op: rdmatest.OpJoin, Err: syscall.EADDRNOTAVAIL}}, rdma.ReasonNotReady},
		{"the held group's event is an error", roce, []rdmatest.Fault{{Op: rdmatest.OpJoinEvent, Group: beside, Err: syscall.EAGAIN}}, rdma.ReasonNotReady},
		{"the scratch group's event is an error", infiniBand, []rdmatest.Fault{{Op: rdmatest.OpJoinEvent, Group: scratch, Err: syscall.ENETRESET}}, rdma.ReasonNotReady},
		{"a join is never answered", infiniBand, []rdmatest.Fault{{Op: rdmatest.OpJoinEvent, Group: scratch, Silent: true}}, rdma.ReasonNoAnswer},
		{"leaving fails", infiniBand, []rdmatest.Fault{{Op: rdmatest.OpLeave, Err: syscall.ENOMEM}}, rdma.ReasonSelfTestFailed},
		{"binding fails", roce, []rdmatest.Fault{{Op: rdmatest.OpBind, Err: syscall.ENOMEM}}, rdma.ReasonSelfTestFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node, link := tt.node()
			for _, f := range tt.faults {
				node.Inject(f)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if tt.want == "" {
				ctx = t.Context()
			}
			err := node.Host().SelfTest(ctx, nil, link, scratch)
			var p *rdma.Problem
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got error %v", err)
			case tt.want != "" && (!errors.As(err, &p) || p.Reason != tt.want || p.Interface != link):
				t.Errorf("got error %v (%+v), want %s", err, p, tt.want)
			}
			nothingLeft(t, node)
			if users := node.IGMP("", link); len(users) > 0 {
				t.Errorf("IGMP users left: %v", users)
			}
		})
	}
}

func TestSelfTestInANetworkNamespace(t *testing.T) {
	const pod = "/run/netns/pod"
	node := roceNode()
	node.AddNetNS(pod)
	node.AddMACVLAN(pod, "net1", "rdma0", netip.MustParsePrefix("10.0.0.51/24"))
	ns, err := node.Host().OpenNetNS(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Host().SelfTest(t.Context(), ns, "net1", scratch); err != nil {
		t.Errorf("in the pod: %v", err)
	}
	var p *rdma.Problem
	if err := node.Host().SelfTest(t.Context(), nil, "net1", scratch); !errors.As(err, &p) || p.Reason != rdma.ReasonNoInterface {
		t.Errorf("on the node: got error %v, want %s", err, rdma.ReasonNoInterface)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	if err := node.Host().SelfTest(t.Context(), ns, "net1", scratch); err == nil {
		t.Error("no error in a closed namespace")
	}
	nothingLeft(t, node)
}

func TestWatchHoldsItsNamespaceOnlyWhileOpen(t *testing.T) {
	const pod = "/run/netns/pod"
	node := roceNode()
	node.AddNetNS(pod)
	ns, err := node.Host().OpenNetNS(pod)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := node.Host().WatchInterfaces(ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	node.AddMACVLAN(pod, "net1", "rdma0", netip.MustParsePrefix("10.0.0.51/24"))
	select {
	case _, open := <-watch.Changed():
		if !open {
			t.Errorf("the watch ended: %v", watch.Err())
		}
	case <-time.After(10 * time.Second):
		t.Error("the new interface isn't told")
	}
	if err := watch.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, node)
}

// A host's probing and its devices, as a program that starts finds them.
func TestProbeOfWhatIsThere(t *testing.T) {
	fabric := rdmatest.NewFabric()
	node, subnet := fabric.AddNode("node-1"), fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
	node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"))
	if problems, err := node.Host().Probe(nil); err != nil || len(problems) > 0 {
		t.Errorf("got problems %v, error %v, want none", problems, err)
	}
	node.AddHCA(subnet, "mlx5_1", "")
	node.SetPortLink("mlx5_0", false)
	node.AddPlainInterface("", "rdma1")
	node.AddDevice("rxe1", "rdma1")
	problems, err := node.Host().Probe(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]rdma.Reason{"mlx5_0": rdma.ReasonPortNotActive, "mlx5_1": rdma.ReasonNoIPoIB, "rxe1": rdma.ReasonNoInterface}
	for _, p := range problems {
		if p.Port != 1 || want[p.Device] != p.Reason {
			t.Errorf("problem %s of %s port %d: %v", p.Reason, p.Device, p.Port, p)
		}
		delete(want, p.Device)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	nothingLeft(t, node)
}

// Devices that can't do it are told apart, without a full join on RoCE v1.
func TestDevicesWithoutMulticast(t *testing.T) {
	node := rdmatest.NewFabric().AddNode("node-1")
	node.AddPlainInterface("", "v1", netip.MustParsePrefix("10.0.1.2/24"))
	node.AddPlainInterface("", "iw", netip.MustParsePrefix("10.0.2.2/24"))
	node.AddRoCEv1Device("mlx4_0", "v1")
	node.AddIWARPDevice("siw0", "iw")
	problems, err := node.Host().Probe(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]rdma.Reason{"mlx4_0": rdma.ReasonRoCEv1, "siw0": rdma.ReasonIWARP}
	for _, p := range problems {
		if want[p.Device] != p.Reason {
			t.Errorf("problem %s of %s: %v", p.Reason, p.Device, p)
		}
	}
	if len(problems) != len(want) {
		t.Errorf("got problems %v, want of %v", problems, want)
	}
	for link, reason := range map[string]rdma.Reason{"v1": rdma.ReasonRoCEv1, "iw": rdma.ReasonIWARP} {
		var p *rdma.Problem
		if err := node.Host().SelfTest(t.Context(), nil, link, scratch); !errors.As(err, &p) || p.Reason != reason {
			t.Errorf("self-test on %s: got error %v, want one with %s", link, err, reason)
		}
	}
	nothingLeft(t, node)
}

// A watch of a namespace's links isn't told of the devices of the host.
func TestWatchOfLinksAlone(t *testing.T) {
	node := roceNode()
	watch, err := node.Host().WatchLinks(nil)
	if err != nil {
		t.Fatal(err)
	}
	node.AddPlainInterface("", "eth0")
	if _, open := <-watch.Changed(); !open {
		t.Fatalf("the watch ended: %v", watch.Err())
	}
	if n := node.OpenWatches(); n != 1 {
		t.Errorf("%d watches open, want 1", n)
	}
	if err := watch.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t, node)
}

// BenchmarkSimulated is join, event and leave on the simulated kernel.
func BenchmarkSimulated(b *testing.B) {
	ch, id, err := bound(roceNode().Host(), "10.0.0.2")
	if err != nil {
		b.Fatal(err)
	}
	defer ch.Close()
	group := netip.MustParseAddr("239.1.1.7")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
			b.Fatal(err)
		}
		if e, err := ch.Next(b.Context()); err != nil || e.Type != rdma.MulticastJoined {
			b.Fatalf("got event %+v, error %v", e, err)
		}
		if err := id.Leave(group); err != nil {
			b.Fatal(err)
		}
	}
}
