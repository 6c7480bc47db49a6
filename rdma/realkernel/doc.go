// Package realkernel has the tests of package rdma on a real kernel, with a
// switch and two Soft-RoCE NICs, as the VM of hack/vm has them. It needs the
// build tag realkernel, and fails where there is no such machine:
//
//	go test -tags realkernel -exec "$PWD/hack/vm/run" ./rdma/realkernel
//
// The programs receiver and rdmamc that it runs are built before, since the VM
// sees the host's files: RECEIVER and RDMAMC are their paths.
package realkernel
