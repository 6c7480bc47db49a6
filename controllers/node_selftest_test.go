package controllers

import (
	"context"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// scratch is the self-test's group in these tests.
var scratch = netip.MustParseAddr("239.255.77.76")

// selfTestWorld runs a self-test in a bubble, where time is fake.
func selfTestWorld(t *testing.T, f func(fabric *rdmatest.Fabric, node *rdmatest.Node, n *NodeSelfTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fabric := rdmatest.NewFabric()
		node := fabric.AddNode("n")
		n := &NodeSelfTest{Host: node.Host(), Group: scratch, Log: logr.Discard()}
		n.init(func() {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Start(ctx) }()
		f(fabric, node, n)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if files, ids, namespaces := node.OpenHandles(); files+ids+namespaces != 0 || len(node.Memberships()) != 0 {
			t.Errorf("left over: %d files, %d ids, %d namespaces, %v", files, ids, namespaces, node.Memberships())
		}
	})
}

// test hands the node's interfaces over and waits until nothing happens.
func (n *NodeSelfTest) settle(t *testing.T, after time.Duration) metav1.Condition {
	t.Helper()
	interfaces, err := n.Host.Interfaces(nil)
	if err != nil {
		t.Fatal(err)
	}
	n.setInterfaces(interfaces)
	time.Sleep(after)
	synctest.Wait()
	return selfTested(n.results())
}

func wantSelfTested(t *testing.T, c metav1.Condition, status metav1.ConditionStatus, reason string, parts ...string) {
	t.Helper()
	if c.Type != v1alpha1.ConditionSelfTested || c.Status != status || c.Reason != reason || c.Message == "" {
		t.Errorf("condition is %+v; want %s %s", c, status, reason)
	}
	for _, part := range parts {
		if !strings.Contains(c.Message, part) {
			t.Errorf("condition's message is %q: want %q", c.Message, part)
		}
	}
}

func TestSelfTestPasses(t *testing.T) {
	selfTestWorld(t, func(fabric *rdmatest.Fabric, node *rdmatest.Node, n *NodeSelfTest) {
		wantSelfTested(t, n.settle(t, 0), metav1.ConditionUnknown, v1alpha1.ReasonSelfTestPending)
		node.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
		node.AddHCA(fabric.AddSubnet("ib", rdmatest.SubnetOptions{}), "mlx5_0", "ib0", netip.MustParsePrefix("198.51.100.1/24"))
		wantSelfTested(t, n.settle(t, 0), metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed, "2 interfaces")
		node.DeleteInterface("", "eth1")
		wantSelfTested(t, n.settle(t, 0), metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed, "1 interfaces")
	})
}

// What an interface can't is told once it was seen several times.
func TestSelfTestFails(t *testing.T) {
	selfTestWorld(t, func(_ *rdmatest.Fabric, node *rdmatest.Node, n *NodeSelfTest) {
		node.AddPlainInterface("", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
		node.AddRoCEv1Device("old0", "eth1")
		n.settle(t, time.Minute)
		problems, _, _ := n.results()
		if len(problems) != 1 || problems[0].Reason != rdma.ReasonRoCEv1 || problems[0].Interface != "eth1" {
			t.Fatalf("problems are %v", problems)
		}
		wantSelfTested(t, n.settle(t, 0), metav1.ConditionFalse, v1alpha1.ReasonSelfTestFailed, "eth1 (old0 port 1)", "RoCE v1")
		node.RemoveDevice("old0") // or an administrator chooses RoCE v2
		node.AddDevice("old0", "eth1")
		wantSelfTested(t, n.settle(t, 2*longestSelfTestRetry), metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed)
	})
}

// One failure may be another agent's test: it is no result.
func TestSelfTestIsTriedAgain(t *testing.T) {
	selfTestWorld(t, func(_ *rdmatest.Fabric, node *rdmatest.Node, n *NodeSelfTest) {
		node.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
		node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EIO, Times: selfTestTries - 1})
		wantSelfTested(t, n.settle(t, 0), metav1.ConditionUnknown, v1alpha1.ReasonSelfTestPending)
		wantSelfTested(t, n.settle(t, time.Minute), metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed)
	})
}

// What passed by itself isn't counted: a failure has to be seen as often all the
// same.
func TestSelfTestCountsFailuresAlone(t *testing.T) {
	selfTestWorld(t, func(_ *rdmatest.Fabric, node *rdmatest.Node, n *NodeSelfTest) {
		node.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
		node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EAGAIN, Times: selfTestTries})
		node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EIO, Times: 1})
		wantSelfTested(t, n.settle(t, time.Hour), metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed)
	})
}

// What may go by itself is waited for, and shown meanwhile.
func TestSelfTestWaits(t *testing.T) {
	selfTestWorld(t, func(_ *rdmatest.Fabric, node *rdmatest.Node, n *NodeSelfTest) {
		node.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
		remove := node.Inject(rdmatest.Fault{Op: rdmatest.OpJoin, Err: syscall.EAGAIN})
		wantSelfTested(t, n.settle(t, time.Hour), metav1.ConditionUnknown, v1alpha1.ReasonSelfTestPending, "eth1")
		remove()
		wantSelfTested(t, n.settle(t, 2*longestSelfTestRetry), metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed)
	})
}

// Of a port's problems the one that refuses is shown; only some refuse.
func TestProblemsOfPorts(t *testing.T) {
	devices := []rdma.Device{
		{Name: "a", Ports: []rdma.Port{{Number: 1}, {Number: 2}}},
		{Name: "b", Ports: []rdma.Port{{Number: 1}}},
		{Name: "c", Ports: []rdma.Port{{Number: 1}}},
	}
	problems := []*rdma.Problem{
		{Reason: rdma.ReasonPortNotActive, Device: "a", Port: 2},
		{Reason: rdma.ReasonNoInterface, Device: "a", Port: 2},
		{Reason: rdma.ReasonNoVerbs, Device: "a"},
		{Reason: rdma.ReasonPortNotActive, Device: "b", Port: 1},
		{Reason: rdma.ReasonSelfTestFailed, Device: "b", Port: 1, Interface: "eth1"},
		{Reason: rdma.ReasonNoRDMACM},
	}
	worst := worstProblems(problems, devices)
	want := map[membership.Port]rdma.Reason{{Device: "a", Number: 1}: rdma.ReasonNoVerbs, {Device: "a", Number: 2}: rdma.ReasonNoVerbs, {Device: "b", Number: 1}: rdma.ReasonSelfTestFailed}
	if len(worst) != len(want) {
		t.Errorf("problems of %d ports: %v", len(worst), worst)
	}
	for port, reason := range want {
		if worst[port] == nil || worst[port].Reason != reason {
			t.Errorf("%v: %v, want %s", port, worst[port], reason)
		}
	}
	if no := unable(worst); len(no) != 2 || no[membership.Port{Device: "a", Number: 2}].Reason != v1alpha1.ReasonNoVerbs {
		t.Errorf("unable: %v", no)
	}
	ports := nodeDevices(devices)
	showProblems(ports, worst)
	for _, p := range ports {
		if (p.Problem != nil) != (p.Name != "c") {
			t.Errorf("%s port %d shows %+v", p.Name, p.Port, p.Problem)
		}
	}
}
