// Package rdmatest is a simulated kernel with its RDMA network, RoCE v2 and
// InfiniBand, for tests and demonstrations of whatever uses package rdma on
// machines without RDMA.
//
// A Fabric has nodes, a node has NICs, network namespaces and interfaces, and
// Node.Host is what the code under test gets in place of rdma.Local. What
// the kernel would know can be looked at: the IGMP memberships of each
// interface (Node.IGMP), the rdma_cm memberships (Node.Memberships), what is
// open (Node.OpenHandles, Node.OpenWatches), and where the network delivers to:
// the switch's table (Fabric.MDB), the subnet manager's (Subnet.MDB). Calls fail
// or stay unanswered on demand (Node.Inject), requests to a subnet manager too
// (Subnet.Inject).
//
//	fabric := rdmatest.NewFabric()
//	node := fabric.AddNode("node-1")
//	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
//	subnet := fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
//	node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"))
//	ch, err := node.Host().OpenChannel()
//
// The suite of package rdma/internal/conformance runs the same scenarios
// against it and the real kernel. There is no software InfiniBand device for
// the latter, so that the InfiniBand side follows the kernel's sources
// (drivers/infiniband/core, ulp/ipoib), and its subnet manager OpenSM, with
// which test/opensm compares it. It simulates membership, never packets:
// nothing is sent or received.
//
// Everything happens at once that nothing holds up: a subnet manager answers
// within the call that asked it, where a real one takes its time. What waits
// by the clock is the kernel for a subnet manager that doesn't answer
// (Subnet.SetTimeout), and IPoIB before it asks again for a broadcast group that
// it didn't get (1 to 16 s; Node.SetInterface makes it ask at once).
//
// Wrong use of the topology, such as a second interface of one name, panics:
// it is a mistake in the test, not a state of the simulated machine.
// Everything is safe for concurrent use.
package rdmatest
