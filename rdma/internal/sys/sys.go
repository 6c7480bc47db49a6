// Package sys is the rdma_cm ABI.
package sys

// Kernel is the seam: the real kernel, or rdmatest's.
type Kernel interface{}
