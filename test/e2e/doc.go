// Package e2e plays the project's scenarios on a whole Kubernetes node with a
// real kernel: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kubelet, containerd, pods with macvlan interfaces on a Soft-RoCE NIC, and this
// project's controller and agent as processes with the identities that
// config/rbac gives them.
//
// Its test (build tag realkernel) takes over the machine that it runs on, so it
// runs in the virtual machine of hack/vm alone; run.sh does it all. What is
// looked at is never the project's own word alone: the switch's multicast
// database tells what the wire saw, /proc/PID/net/igmp what the kernel is a
// member of, and a receiver that uses libibverbs alone what is delivered.
package e2e
