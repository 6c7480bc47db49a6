// Package deviceplugin advertises the node's RDMA devices to kubelet, hands them
// out to containers, and has each start of a container wait for a gate: that is
// where a pod's multicast groups are joined.
//
//	plugin, err := deviceplugin.New(deviceplugin.Options{
//		Host:       rdma.Local(),
//		Gate:       gate, // PreStart(ctx, allocation) error
//		ConfigFile: "/etc/rdma-multicast/config.json",
//	})
//	...
//	err = plugin.Run(ctx)
//
// It never joins or leaves a group, knows no pods, and asks neither the API
// server nor the container runtime.
//
// # Parts
//
// The configuration (Config, Parse) says which resources there are and which
// devices belong to each. Without a file that is every device, as
// rdma-multicast.dev/nic. The file is read again when it changes, and the change
// is in force at once; one with errors changes nothing (Options.OnConfig).
//
// Devices come from package rdma's inventory, the attributes of the bus that
// selectors ask for from sysfs. A device is healthy if one of its ports is active
// and it has what its resource promises. One whose interface was moved into a
// pod is in use, not gone: its interfaces' names are remembered. What somebody
// has to mend is told as Problems.
//
// A slot is what kubelet calls a device: its ID is the RDMA device's name and a
// number, as many for each as the configuration says (rdmaHcaMax). A container
// that asks for several slots gets several devices, if there are as many.
//
// Each resource has a server, and a registration with kubelet: a new socket for
// each, made anew whenever kubelet ends ListAndWatch, kubelet.sock is another one,
// or the socket has been removed. Two instances can serve one resource at a
// time, as they do while an agent is upgraded, whether kubelet takes the newer
// for another endpoint (1.37) or ends the newer one's list when the older leaves.
//
// An Allocation is what Allocate has given a container: nodes of /dev/infiniband,
// or the CDI names for them, and a directory of its own, which whoever joins
// the groups writes to. The container sees it, read-only, as
// /run/rdma-multicast/ and the resource's name without its prefix. It is named by
// the slots, and a new directory for each new pod.
//
// The resource rdma-multicast.dev/gate is always served. It has no device: pods
// whose NIC comes from elsewhere ask for it to have the gate and the directory.
//
// # Known limits
//
// kubelet starts containers without asking while a plugin isn't registered: after
// its own restart, until the registration some milliseconds later.
//
// While two instances run beside a kubelet before 1.37 that restarts, the older
// one may register last. When it leaves, that kubelet has no endpoint of the
// resource, and tells the newer one nothing: it has to be started again.
//
// In the exclusive mode of RDMA network namespaces a device that was moved into
// a pod isn't visible from the node, so that it isn't listed until it is back.
package deviceplugin
