package rdmatest

import "github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"

// Kernel is a node's kernel, for scenarios below package rdma.
func Kernel(n *Node) sys.Kernel { return kernel{n} }
