// Package realkernel has the tests of package rdma on a real kernel, with a
// switch and two Soft-RoCE NICs, as the VM of hack/vm has them. It needs the
// build tag realkernel, and fails where there is no such machine:
//
//	cc -O2 -o "$RECEIVER" test/receiver/receiver.c -libverbs
//	CGO_ENABLED=0 go build -o "$RDMAMC" ./cmd/rdmamc
//	go test -tags realkernel -exec "$PWD/hack/vm/run" ./rdma/realkernel
package realkernel
