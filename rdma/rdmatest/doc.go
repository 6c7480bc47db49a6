// Package rdmatest is a simulated kernel and RoCE v2 network, for tests and
// demonstrations of whatever uses package rdma on machines without RDMA.
//
// A Fabric has nodes, a node has NICs, network namespaces and interfaces, and
// Node.Host is what the code under test gets in place of rdma.Local. What
// the kernel would know can be looked at: the IGMP memberships of each
// interface (Node.IGMP), the rdma_cm memberships (Node.Memberships), what is
// open (Node.OpenHandles), and where the switch delivers to (Fabric.MDB). Calls
// fail or stay unanswered on demand (Node.Inject).
//
// The suite of package rdma/internal/conformance runs the same scenarios
// against it and the real kernel. It simulates membership, never packets:
// nothing is sent or received.
//
//	fabric := rdmatest.NewFabric()
//	node := fabric.AddNode("node-1")
//	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
//	ch, err := node.Host().OpenChannel()
//
// Wrong use of the topology, such as a second interface of one name, panics:
// it is a mistake in the test, not a state of the simulated machine.
// Everything is safe for concurrent use.
package rdmatest
