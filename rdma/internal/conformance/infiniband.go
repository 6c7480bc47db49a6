package conformance

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// InfiniBandMachine is what InfiniBand scenarios run on: an InfiniBand port on a
// subnet, in partitions 0xffff and 0x8001, and another node's.
//
//	node   device  interface  addresses
//	vm     mlx5_0  ib0        10.1.0.2/24 fd01::2/64
//	other  mlx5_0  ib0        10.1.0.3/24
//
// There is no InfiniBand device in software, and so no real kernel to run them.
type InfiniBandMachine interface {
	Machine
	Subnet() *rdmatest.Subnet
	Node() *rdmatest.Node
	Other() *rdmatest.Node
}

// The InfiniBand machine's device.
const (
	hca, ipoib0 = "mlx5_0", "ib0"
	// partition is the P_Key that only children have.
	partition = 0x8001
)

func ipoibAddr() netip.Addr { return netip.MustParseAddr("10.1.0.2") }
func otherAddr() netip.Addr { return netip.MustParseAddr("10.1.0.3") }

// InfiniBand are the scenarios of InfiniBand ports.
func InfiniBand() []Scenario {
	var all []Scenario
	for _, some := range [][]ibScenario{
		ibMGIDs(), ibJoining(), ibSharing(), ibRefusals(), ibWaiting(), ibLosses(), ibPartitions(), ibRemoval(),
	} {
		for _, s := range some {
			all = append(all, Scenario{s.Name, func(t *testing.T, m Machine) { s.Run(t, m.(InfiniBandMachine)) }})
		}
	}
	return all
}

type ibScenario struct {
	Name string
	Run  func(t *testing.T, m InfiniBandMachine)
}

// bindIB makes an id of a port space on the machine's IPoIB interface.
func bindIB(t *testing.T, ch *rdma.Channel, ps rdma.PortSpace) *rdma.ID {
	t.Helper()
	return bindAs(t, ch, nil, ps, ipoibAddr())
}

func bindAs(t *testing.T, ch *rdma.Channel, ns *rdma.NetNS, ps rdma.PortSpace, addr netip.Addr) *rdma.ID {
	t.Helper()
	id, err := ch.NewID(ns, ps)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Bind(addr); err != nil {
		t.Fatal(err)
	}
	return id
}

// joinMGID is Join for a verbatim MGID.
func joinMGID(t *testing.T, ch *rdma.Channel, id *rdma.ID, mgid netip.Addr) rdma.Event {
	t.Helper()
	m, err := id.JoinMGID(mgid, rdma.JoinOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := Next(t, ch)
	if e.Type != rdma.MulticastJoined || e.Membership != m {
		t.Fatalf("joining %v: got event %+v, want MulticastJoined of that membership", mgid, e)
	}
	return e
}

// udpMGID is the MGID of a group in port space UDP on the default partition.
func udpMGID(group netip.Addr) netip.Addr {
	mgid, _ := rdma.MapMGID(group, rdma.PortSpaceUDP, 0xffff, 2)
	return mgid
}

// full and sendOnly are the vm's port with that join state.
func full() rdmatest.SubnetMember {
	return rdmatest.SubnetMember{Node: "vm", Device: hca, Full: true}
}

func sendOnly() rdmatest.SubnetMember {
	return rdmatest.SubnetMember{Node: "vm", Device: hca, SendOnly: true}
}

// wantMembers checks whom the subnet manager has in a group.
func wantMembers(t *testing.T, m InfiniBandMachine, mgid netip.Addr, members ...rdmatest.SubnetMember) {
	t.Helper()
	if got := m.Subnet().MDB()[mgid].Members; !slices.Equal(got, members) {
		t.Errorf("members of %v: the subnet manager has %+v, want %+v", mgid, got, members)
	}
}

// wantLost takes the event of a lost membership, or of a failed join.
func wantLost(t *testing.T, ch *rdma.Channel, errno syscall.Errno) {
	t.Helper()
	e := Next(t, ch)
	if e.Type != rdma.MulticastError || !errors.Is(e.Err, errno) {
		t.Errorf("got event %+v, want MulticastError with %v", e, errno)
	}
}

// quiet checks that no event is queued, by having one queued that is known.
func quiet(t *testing.T, ch *rdma.Channel) {
	t.Helper()
	id := bindIB(t, ch, rdma.PortSpaceUDP)
	Join(t, ch, id, netip.MustParseAddr("239.255.255.1"), rdma.JoinOptions{})
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
}
