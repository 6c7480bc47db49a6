// Package deviceplugin advertises the node's RDMA devices to kubelet.
package deviceplugin
