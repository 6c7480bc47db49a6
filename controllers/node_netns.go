package controllers

import (
	"errors"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// inNetNS calls f with the network namespace at a path, nil for that of this
// process where path is "". It is open only meanwhile.
func inNetNS(host *rdma.Host, path string, f func(*rdma.NetNS) error) (err error) {
	if path == "" {
		return f(nil)
	}
	ns, err := host.OpenNetNS(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	return f(ns)
}
