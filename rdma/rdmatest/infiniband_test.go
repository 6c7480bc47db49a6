package rdmatest_test

import (
	"net/netip"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func TestInfiniBandConformance(t *testing.T) {
	conformance.Run(t, newInfiniBandMachine, conformance.InfiniBand())
}

// infiniBandMachine is conformance's on a simulated node.
type infiniBandMachine struct {
	*machine
	subnet *rdmatest.Subnet
	other  *rdmatest.Node
}

func (m infiniBandMachine) Subnet() *rdmatest.Subnet { return m.subnet }

func (m infiniBandMachine) Node() *rdmatest.Node { return m.node }

func (m infiniBandMachine) Other() *rdmatest.Node { return m.other }

func newInfiniBandMachine(t *testing.T) conformance.Machine {
	fabric := rdmatest.NewFabric()
	subnet := fabric.AddSubnet("subnet", rdmatest.SubnetOptions{MLIDs: 40})
	subnet.AddPartition(rdmatest.Partition{PKey: 0x8001})
	m := infiniBandMachine{
		machine: &machine{fabric: fabric, node: fabric.AddNode("vm")},
		subnet:  subnet,
		other:   fabric.AddNode("other"),
	}
	m.node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("fd01::2/64"))
	m.other.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.3/24"))
	for _, n := range []*rdmatest.Node{m.node, m.other} {
		n.SetPKeys("mlx5_0", 0xffff, 0x8001)
		t.Cleanup(func() { wantNothingOpen(t, n) })
	}
	return m
}

// wantNothingOpen fails where something is left that a scenario cleans up.
func wantNothingOpen(t *testing.T, n *rdmatest.Node) {
	t.Helper()
	if got := n.Memberships(); len(got) != 0 {
		t.Errorf("memberships left over on %s: %+v", n.Name(), got)
	}
	if files, ids, namespaces := n.OpenHandles(); files+ids+namespaces+n.OpenWatches() != 0 {
		t.Errorf("left open on %s: %d files, %d ids, %d namespaces, %d watches",
			n.Name(), files, ids, namespaces, n.OpenWatches())
	}
}
