package sys

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// dumpAttempts bounds how often a netlink dump is taken again because the
// table changed meanwhile.
const dumpAttempts = 10

// withNetlink runs f with a netlink socket in the namespace.
func withNetlink(ns NetNS, family int, f func(*netlink.Handle) error) error {
	n, err := ours(ns)
	if err != nil {
		return err
	}
	open := func(fd int) error {
		h, err := netlink.NewHandleAt(netns.NsHandle(fd), family)
		if err != nil {
			return fmt.Errorf("open netlink socket: %w", err)
		}
		defer h.Close()
		return f(h)
	}
	if n == nil {
		return open(int(netns.None()))
	}
	return n.control(open)
}

// dump takes a netlink dump until one wasn't interrupted by a change.
func dump[T any](take func() ([]T, error)) ([]T, error) {
	var err error
	for range dumpAttempts {
		var all []T
		all, err = take()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, err
}

// links lists a namespace's links with their addresses.
func links(ns NetNS) ([]Link, error) {
	var out []Link
	err := withNetlink(ns, unix.NETLINK_ROUTE, func(h *netlink.Handle) error {
		all, err := dump(h.LinkList)
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		byLink := map[int][]netip.Prefix{}
		for _, a := range addrs {
			if p, ok := prefix(a.IPNet); ok {
				byLink[a.LinkIndex] = append(byLink[a.LinkIndex], p)
			}
		}
		for _, l := range all {
			attrs := l.Attrs()
			out = append(out, Link{
				Index:        attrs.Index,
				Name:         attrs.Name,
				Loopback:     attrs.Flags&net.FlagLoopback != 0,
				HardwareAddr: attrs.HardwareAddr,
				Addrs:        byLink[attrs.Index],
			})
		}
		return nil
	})
	return out, err
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	ones, bits := n.Mask.Size()
	if addr = addr.Unmap(); bits != addr.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, ones), true
}

// deviceNames lists the RDMA devices visible in a namespace by ibdev index.
func deviceNames(ns NetNS) (map[uint32]string, error) {
	names := map[uint32]string{}
	err := withNetlink(ns, unix.NETLINK_RDMA, func(h *netlink.Handle) error {
		devices, err := dump(h.RdmaLinkList)
		if err != nil {
			return fmt.Errorf("list RDMA devices: %w", err)
		}
		for _, d := range devices {
			names[d.Attrs.Index] = d.Attrs.Name
		}
		return nil
	})
	// No RDMA in this kernel: no devices.
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return names, nil
	}
	return names, err
}
