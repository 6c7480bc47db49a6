package rdma

import (
	"net"
	"sync"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// Host is one machine's RDMA stack: the running kernel's, or that of a node of
// rdmatest's simulated fabric.
type Host struct {
	kernel  sys.Kernel
	devices deviceNames
}

// Local is the running kernel. Safe for concurrent use, as every Host.
func Local() *Host { return NewHost(sys.New()) }

// NewHost puts a kernel behind a Host. A sys.Kernel can only come from this
// module: rdmatest is what it is for.
func NewHost(kernel sys.Kernel) *Host {
	return &Host{kernel: kernel, devices: deviceNames{kernel: kernel}}
}

// deviceNames are the names of RDMA devices by their index. The kernel counts
// indices up, so that one isn't soon used again; a device can be renamed, so
// that names aren't believed for long.
type deviceNames struct {
	kernel sys.Kernel

	mu    sync.Mutex
	names map[uint32]string
	read  time.Time
}

// namesAge is how long names are believed: a start, when a port is bound for
// each of a hundred pods, reads them once.
const namesAge = time.Second

// name is a device's name; "" where there is none in the namespace.
func (d *deviceNames) name(ns sys.NetNS, index uint32) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name, known := d.names[index]; known && time.Since(d.read) < namesAge {
		return name, nil
	}
	names, err := d.kernel.DeviceNames(ns)
	if err != nil {
		return "", err
	}
	d.names, d.read = names, time.Now()
	return names[index], nil
}

// NetNS is an open network namespace. It keeps the namespace alive until it is
// closed. Safe for concurrent use.
type NetNS struct {
	path string

	mu sync.RWMutex
	ns sys.NetNS // nil once closed
}

// OpenNetNS opens the network namespace at a path such as /run/netns/x or
// /proc/PID/ns/net. Using it takes CAP_SYS_ADMIN.
//
// ENOENT: there is none; EINVAL or ENOTTY: it isn't a network namespace.
func (h *Host) OpenNetNS(path string) (*NetNS, error) {
	ns, err := h.kernel.OpenNetNS(path)
	if err != nil {
		return nil, &OpError{Op: "open network namespace", Path: path, Err: err}
	}
	return &NetNS{path: path, ns: ns}, nil
}

// Close closes the namespace. Ids that were created in it live on, and keep
// the namespace alive themselves. Closing twice is harmless.
func (ns *NetNS) Close() error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.ns == nil {
		return nil
	}
	err := ns.ns.Close()
	ns.ns = nil
	return err
}

// use runs f with the namespace open; nil is the calling process's own.
func (ns *NetNS) use(f func(sys.NetNS) error) error {
	if ns == nil {
		return f(nil)
	}
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	if ns.ns == nil {
		return &OpError{Op: "use network namespace", Path: ns.path, Err: net.ErrClosed}
	}
	return f(ns.ns)
}
