// Package localcluster runs a Kubernetes cluster on one machine, without
// containers, virtual machines or RDMA hardware, for the demo and the tests.
//
// The control plane is real: etcd and kube-apiserver as processes, RBAC on.
// The controller is the product's, in process. The nodes are hollow: each has a
// Node object, a simulated machine on one shared simulated fabric (package
// rdmatest), RoCE or InfiniBand, a simulated runtime that speaks CRI on a Unix
// socket, a small kubelet that gives pods a sandbox with an interface on the RDMA
// NIC, a macvlan or an IPoIB child in a partition of the pods' own, and the
// product's own agent, made by the constructor that cmd/agent uses. No
// container is ever started: a pod that is shown as Running has a sandbox,
// a network namespace and addresses, and nothing else.
//
// Nothing in a production binary imports this package.
package localcluster
