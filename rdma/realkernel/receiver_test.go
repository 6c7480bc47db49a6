//go:build realkernel

package realkernel

import "github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"

func realOnly() []conformance.Scenario { return nil }
