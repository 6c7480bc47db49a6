package rdmatest_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// newHCA is a node with an InfiniBand port.
func newHCA() (*rdmatest.Subnet, *rdmatest.Node) {
	fabric := rdmatest.NewFabric()
	subnet := fabric.AddSubnet("subnet", rdmatest.SubnetOptions{})
	node := fabric.AddNode("node")
	node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"))
	return subnet, node
}

func TestAKernelWaitsThreeSecondsForTheSubnetManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		subnet, node := newHCA()
		ch, err := node.Host().OpenChannel()
		if err != nil {
			t.Fatal(err)
		}
		defer ch.Close()
		id := conformance.Bind(t, ch, netip.MustParseAddr("10.1.0.2"))
		defer subnet.Inject(rdmatest.SAFault{Op: rdmatest.OpSASet, Silent: true})()
		start := time.Now()
		if _, err := id.Join(netip.MustParseAddr("239.1.2.3"), rdma.JoinOptions{}); err != nil {
			t.Fatal(err)
		}
		if e := conformance.Next(t, ch); e.Type != rdma.MulticastError || !errors.Is(e.Err, syscall.ETIMEDOUT) {
			t.Errorf("got event %+v, want MulticastError with ETIMEDOUT", e)
		}
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("waited %v, want 3 s", waited)
		}
	})
}

// IPoIB asks for its broadcast group after 1, 2, 4, 8 and then every 16 s.
func TestIPoIBBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		subnet, node := newHCA()
		broadcast := netip.MustParseAddr("ff12:401b:ffff::ffff:ffff")
		joined := func() bool { return len(subnet.MDB()[broadcast].Members) == 1 }
		if !joined() {
			t.Fatal("not joined to begin with")
		}
		remove := subnet.Inject(rdmatest.SAFault{MGID: broadcast, Op: rdmatest.OpSASet, Status: 0x0200, Times: 6})
		defer remove()
		start := time.Now()
		subnet.FailOver(true)
		links, err := rdmatest.Kernel(node).WatchLinks(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer links.Close()
		<-links.Changed()
		if waited := time.Since(start); waited != (1+2+4+8+16+16)*time.Second || !joined() {
			t.Errorf("after %v: joined %v, want it after six refusals, 47 s", waited, joined())
		}
		// Taken down and up, it asks at once, and begins with a second again.
		subnet.Inject(rdmatest.SAFault{MGID: broadcast, Op: rdmatest.OpSASet, Status: 0x0200, Times: 1})
		node.SetInterface("", "ib0", false)
		node.SetInterface("", "ib0", true)
		if joined() {
			t.Error("joined although refused")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !joined() {
			t.Error("not joined a second after the refusal")
		}
		// One that is gone asks no more.
		subnet.Inject(rdmatest.SAFault{MGID: broadcast, Status: 0x0200})
		subnet.FailOver(true)
		node.RemoveDevice("mlx5_0")
		time.Sleep(time.Minute)
		synctest.Wait()
		if joined() {
			t.Error("joined without a device")
		}
	})
}

func TestAnAnswerAfterTheTimeoutFindsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		subnet, node := newHCA()
		ch, err := node.Host().OpenChannel()
		if err != nil {
			t.Fatal(err)
		}
		defer ch.Close()
		id := conformance.Bind(t, ch, netip.MustParseAddr("10.1.0.2"))
		group := netip.MustParseAddr("239.1.2.3")
		mgid, _ := rdma.MapMGID(group, rdma.PortSpaceUDP, 0xffff, 2)
		conformance.Join(t, ch, id, group, rdma.JoinOptions{})

		// A leave is sent four times, and all are kept, and carried out late.
		carryOut := subnet.Inject(rdmatest.SAFault{Op: rdmatest.OpSADelete, MGID: mgid, Late: true})
		if err := id.Leave(group); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		// Joined anew meanwhile, the port is thrown out by the old leaves: on the
		// wire there is nothing that tells them apart.
		conformance.Join(t, ch, id, group, rdma.JoinOptions{})
		if members := subnet.MDB()[mgid].Members; len(members) != 1 {
			t.Errorf("got members %+v, want the port", members)
		}
		carryOut()
		if members := subnet.MDB()[mgid].Members; len(members) != 0 {
			t.Errorf("got members %+v, want none", members)
		}
	})
}
