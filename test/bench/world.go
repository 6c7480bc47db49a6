package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

const (
	maxNamespaces = 2000
	maxGroups     = 250

	parent   = "rdma0" // the machine's first Soft-RoCE interface
	podLink  = "net1"
	nsFolder = "/run/netns"
	// pattern is what reference/many.c takes.
	pattern = nsFolder + "/bench%d"
)

func nsPath(n int) string { return fmt.Sprintf(pattern, n) }

// podAddr is the address of the interface in a namespace; reference/many.c knows
// the rule too.
func podAddr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(n / 200), byte(n%200 + 1)})
}

func groupAddr(g int) netip.Addr { return netip.AddrFrom4([4]byte{239, 77, 0, byte(g + 1)}) }

// world has the network namespaces, each with a macvlan of the RDMA interface.
type world struct{ count int }

func newWorld(count int) (*world, error) {
	runtime.LockOSThread() // never unlocked on failure: the program ends
	own, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer own.Close()
	master, err := netlink.LinkByName(parent)
	if err != nil {
		return nil, err
	}
	// kube-apiserver looks for the interface that a default route names.
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: master.Attrs().Index, Gw: net.IPv4(10, 0, 0, 1)}); err != nil {
		return nil, fmt.Errorf("default route: %w", err)
	}
	for n := range count {
		if err := addNamespace(n, own, master); err != nil {
			return nil, fmt.Errorf("namespace %d: %w", n, err)
		}
	}
	if err := netns.Set(own); err != nil {
		return nil, err
	}
	runtime.UnlockOSThread()
	return &world{count: count}, nil
}

func addNamespace(n int, own netns.NsHandle, master netlink.Link) error {
	ns, err := netns.NewNamed(filepath.Base(nsPath(n)))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := netns.Set(own); err != nil {
		return err
	}
	name := "v" + strconv.Itoa(n)
	link := &netlink.Macvlan{
		LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: master.Attrs().Index, Namespace: netlink.NsFd(ns)},
		Mode:      netlink.MACVLAN_MODE_BRIDGE,
	}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	if err := h.LinkSetName(l, podLink); err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: podAddr(n).AsSlice(), Mask: net.CIDRMask(16, 32)}}
	if err := h.AddrAdd(l, addr); err != nil {
		return err
	}
	return h.LinkSetUp(l)
}

// joined counts the groups of the bench that the interface in a namespace is a
// member of, as the kernel tells.
func (w *world) joined(n, groups int) (int, error) {
	type answer struct {
		text []byte
		err  error
	}
	got := make(chan answer)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := netns.GetFromPath(nsPath(n))
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile("/proc/thread-self/net/igmp")
		}
		got <- answer{text, err}
	}()
	a := <-got
	count := 0
	for g := range groups {
		b := groupAddr(g).As4()
		if bytes.Contains(a.text, fmt.Appendf(nil, "\t%02X%02X%02X%02X ", b[3], b[2], b[1], b[0])) {
			count++
		}
	}
	return count, a.err
}

// members counts them in all namespaces.
func (w *world) members(groups int) (int, error) {
	sum := 0
	for n := range w.count {
		c, err := w.joined(n, groups)
		if err != nil {
			return 0, err
		}
		sum += c
	}
	return sum, nil
}

// eventually waits until check has no error.
func eventually(ctx context.Context, bound, every time.Duration, what string, check func() error) error {
	deadline := time.Now().Add(bound)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w", what, bound, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// runReference runs one of the C programs, which print nanoseconds.
func (s *settings) runReference(ctx context.Context, program string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.reference, program), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	ns, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return time.Duration(ns), nil
}
