package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// Interface is a network interface that rdma_cm can bind to.
type Interface struct {
	// Name and Index are the interface's in its namespace.
	Name  string
	Index int
	// Addrs are the addresses that rdma_cm can bind to, IPv4 first, otherwise in
	// the kernel's order; at least one. IPv6 link-local ones are left out: Bind
	// takes no zone.
	Addrs []netip.Prefix
	// Device, Port and LinkLayer are those of the RDMA port behind it.
	Device    string
	Port      int
	LinkLayer LinkLayer
	// PKey is the P_Key of an IPoIB interface, with the full member's bit
	// (0x8000) whatever the port's membership in the partition: 0x8001 of the
	// child ib0.8001. 0xFFFF on RoCE.
	PKey uint16
}

// Interfaces lists the RDMA-capable interfaces of a network namespace (nil: the
// calling process's), in the kernel's order. RDMA-capable is what rdma_cm can
// bind to, which it is asked with an id for each address, closed at once: so
// children of a RoCE netdev (VLAN, macvlan) count, and an interface whose GID
// isn't there yet doesn't.
//
// Errors, each in an *OpError: ErrUnavailable: the kernel has no rdma_cm. EACCES
// or EPERM: the device's permissions. EPERM: entering another namespace takes
// CAP_SYS_ADMIN. An interface that goes meanwhile is left out.
func (h *Host) Interfaces(ns *NetNS) ([]Interface, error) {
	cm, err := h.openCM()
	if err != nil {
		return nil, err
	}
	var out []Interface
	err = ns.use(func(ns sys.NetNS) error {
		links, err := h.kernel.Links(ns)
		if err != nil {
			return &OpError{Op: "list network interfaces", Err: err}
		}
		names, err := h.kernel.DeviceNames(ns)
		if err != nil {
			return &OpError{Op: "list RDMA devices", Err: err}
		}
		for _, l := range links {
			i, ok, err := h.probeLink(cm, ns, l, names)
			if err != nil {
				return err
			}
			if ok {
				out = append(out, i)
			}
		}
		return nil
	})
	if cerr := cm.Close(); cerr != nil {
		err = errors.Join(err, &OpError{Op: "close", Path: sys.CMPath, Err: cerr})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LinkNames lists all network interfaces of a namespace (nil: the calling
// process's), RDMA-capable or not, in the kernel's order: what tells an
// interface that isn't RDMA from one that doesn't exist. Errors as of Devices.
func (h *Host) LinkNames(ns *NetNS) ([]string, error) {
	var names []string
	err := ns.use(func(ns sys.NetNS) error {
		links, err := h.kernel.Links(ns)
		if err != nil {
			return &OpError{Op: "list network interfaces", Err: err}
		}
		for _, l := range links {
			names = append(names, l.Name)
		}
		return nil
	})
	return names, err
}

// IGMP counts the users of each IPv4 group on an interface of a network
// namespace (nil: the calling process's), as /proc/net/igmp tells: each full
// member on RoCE v2 is one, sockets are others. Nothing on InfiniBand says who
// is a member of an rdma_cm group.
//
// The error is an *OpError with the kernel's errno.
func (h *Host) IGMP(ns *NetNS, iface string) (users map[netip.Addr]int, err error) {
	err = ns.use(func(ns sys.NetNS) error {
		if users, err = h.kernel.IGMP(ns, iface); err != nil {
			return &OpError{Op: "read IGMP memberships", Interface: iface, Err: err}
		}
		return nil
	})
	return users, err
}

// openCM opens the rdma_cm device.
func (h *Host) openCM() (sys.CM, error) {
	cm, err := h.kernel.OpenCM()
	if err == nil {
		return cm, nil
	}
	// A device node that outlived its module gives ENXIO or ENODEV.
	for _, gone := range []error{syscall.ENOENT, syscall.ENXIO, syscall.ENODEV} {
		if errors.Is(err, gone) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
			break
		}
	}
	return nil, &OpError{Op: "open", Path: sys.CMPath, Err: err}
}

// probeLink binds to each of a link's addresses.
func (h *Host) probeLink(cm sys.CM, ns sys.NetNS, l sys.Link, names map[uint32]string) (Interface, bool, error) {
	out := Interface{Name: l.Name, Index: l.Index}
	if l.Loopback {
		return out, false, nil
	}
	var v4, v6 []netip.Prefix
	for _, p := range l.Addrs {
		if p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() {
			continue
		}
		bound, ok, err := probe(cm, ns, p.Addr())
		if err != nil {
			return out, false, err
		}
		device, known := names[bound.DeviceIndex]
		if !ok || !known || (out.Device != "" && (device != out.Device || int(bound.Port) != out.Port)) {
			continue
		}
		out.Device, out.Port, out.PKey = device, int(bound.Port), interfacePKey(bound)
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	if out.Device == "" {
		return out, false, nil
	}
	out.Addrs = append(v4, v6...)
	layer, err := h.kernel.LinkLayer(out.Device, out.Port)
	if errors.Is(err, syscall.ENOENT) {
		return out, false, nil // the device is gone meanwhile
	}
	if err != nil {
		return out, false, &OpError{Op: "read link layer", Interface: l.Name, Err: err}
	}
	out.LinkLayer = LinkLayer(layer)
	return out, true, nil
}

// probe binds an id to an address and asks what it is bound to. Any errno of
// bind says that rdma_cm can't bind there, except for what says nothing about
// the address.
func probe(cm sys.CM, ns sys.NetNS, addr netip.Addr) (bound sys.BoundAddr, ok bool, err error) {
	id, err := cm.CreateID(ns, probeUID, sys.PortSpaceUDP)
	if err != nil {
		return bound, false, &OpError{Op: "create id", Addr: addr, Err: err}
	}
	err = cm.Bind(id, addr)
	if ok = err == nil; ok {
		if bound, err = cm.QueryAddr(id); isGone(err) {
			ok, err = false, nil
		} else if err != nil {
			err = &OpError{Op: "query", Addr: addr, Err: err}
		}
	} else if errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EACCES) {
		err = &OpError{Op: "bind", Addr: addr, Err: err}
	} else {
		err = nil
	}
	if _, derr := cm.Destroy(id); derr != nil {
		err = errors.Join(err, &OpError{Op: "destroy id", Addr: addr, Err: derr})
	}
	return bound, ok, err
}

// isGone: the device behind an id has gone. EIO on older kernels.
func isGone(err error) bool {
	return errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EIO)
}

// probeUID marks ids whose events nobody reads.
const probeUID = 1
