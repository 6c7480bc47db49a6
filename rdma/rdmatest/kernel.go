package rdmatest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// kernel is a node behind the seam of package rdma.
type kernel struct{ n *Node }

// handle is an open network namespace.
type handle struct {
	n    *Node
	ns   *namespace
	once sync.Once
}

func (h *handle) Close() error {
	h.once.Do(func() {
		h.n.fabric.mu.Lock()
		defer h.n.fabric.mu.Unlock()
		h.n.handles--
	})
	return nil
}

// namespace is the one behind a handle; fabric.mu is held.
func (n *Node) namespace(ns sys.NetNS) (*namespace, error) {
	if ns == nil {
		return n.namespaces[""], nil
	}
	h, ok := ns.(*handle)
	if !ok || h.n != n {
		return nil, fmt.Errorf("a network namespace of another kernel: %w", syscall.EINVAL)
	}
	return h.ns, nil
}

func (k kernel) OpenNetNS(path string) (sys.NetNS, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	ns := k.n.namespaces[path]
	if ns == nil || path == "" {
		return nil, syscall.ENOENT
	}
	k.n.handles++
	return &handle{n: k.n, ns: ns}, nil
}

func (k kernel) OpenCM() (sys.CM, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	if err := k.n.fault(OpOpen, nil, netip.Addr{}); err != nil {
		return nil, err
	}
	if !k.n.loaded {
		return nil, syscall.ENOENT
	}
	f := &file{n: k.n, ready: make(chan struct{}, 1), closed: make(chan struct{})}
	k.n.files[f] = true
	return f, nil
}

func (k kernel) Links(ns sys.NetNS) ([]sys.Link, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	space, err := k.n.namespace(ns)
	if err != nil {
		return nil, err
	}
	out := make([]sys.Link, 0, len(space.links))
	for _, l := range space.links {
		out = append(out, sys.Link{
			Index:        l.index,
			Name:         l.name,
			Loopback:     l.name == loopback,
			HardwareAddr: l.hardwareAddr(),
			Addrs:        slices.Clone(l.addrs),
		})
	}
	return out, nil
}

func (k kernel) DeviceNames(ns sys.NetNS) (map[uint32]string, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	space, err := k.n.namespace(ns)
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, d := range k.n.nics {
		if d.visible(space) {
			names[d.index] = d.name
		}
	}
	return names, nil
}

// Devices has, as sysfs does, the GIDs of the interfaces of every namespace.
func (k kernel) Devices(ns sys.NetNS) ([]sys.Device, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	space, err := k.n.namespace(ns)
	if err != nil {
		return nil, err
	}
	var out []sys.Device
	for _, d := range k.n.nics {
		if !d.visible(space) {
			continue
		}
		g := d.guid
		out = append(out, sys.Device{
			Name:     d.name,
			NodeType: d.nodeType(),
			NodeGUID: fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff),
			NUMANode: -1,
			UVerbs:   fmt.Sprintf("uverbs%d", d.uverbs),
			Ports: []sys.Port{{
				Number: portNumber, LinkLayer: d.linkLayer(), State: d.state(), GIDs: d.table(),
			}},
		})
	}
	slices.SortFunc(out, func(a, b sys.Device) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

const (
	portNumber = 1 // the only one of every device
	// defaultPKey is the default partition's, full member.
	defaultPKey = 0xffff
)

func (k kernel) LinkLayer(device string, port int) (string, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	d := k.n.findNIC(device)
	if d == nil || port != portNumber {
		return "", syscall.ENOENT
	}
	return d.linkLayer(), nil
}

func (k kernel) GID(device string, port, index int) (sys.GID, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	d := k.n.findNIC(device)
	if d == nil || port != portNumber || index < 0 || index >= d.slots() {
		return sys.GID{}, syscall.ENOENT
	}
	for _, g := range d.table() {
		if g.Index == index {
			return g, nil
		}
	}
	return sys.GID{Index: index, GID: netip.IPv6Unspecified()}, nil
}

// PKeys is the port's table; Soft-RoCE has the default partition alone.
func (k kernel) PKeys(device string, port int) ([]uint16, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	d := k.n.findNIC(device)
	switch {
	case d == nil || port != portNumber:
		return nil, syscall.ENOENT
	case d.ib != nil:
		return slices.Clone(d.ib.pkeys), nil
	}
	return []uint16{defaultPKey}, nil
}

// IGMP has no groups for an interface that the namespace doesn't have.
func (k kernel) IGMP(ns sys.NetNS, name string) (map[netip.Addr]int, error) {
	k.n.fabric.mu.Lock()
	defer k.n.fabric.mu.Unlock()
	space, err := k.n.namespace(ns)
	if err != nil {
		return nil, err
	}
	groups := map[netip.Addr]int{}
	if l := space.find(name); l != nil {
		maps.Copy(groups, l.igmp)
	}
	return groups, nil
}
