package sys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// sysfs reads /sys/class/infiniband. prometheus/procfs has a reader for it,
// but that one reads every counter of every port and fails on a driver's
// unusual one; these few attributes are all that is needed.
type sysfs struct{ root fs.FS } // rooted at /sys

const (
	classPath = "class/infiniband"
	// maxAttribute is more than sysfs ever gives: an attribute is one page.
	maxAttribute = 64 << 10
)

// attribute reads one attribute, without the newline.
func (s sysfs) attribute(elem ...string) (string, error) {
	f, err := s.root.Open(path.Join(append([]string{classPath}, elem...)...))
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxAttribute))
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// device reads a device with its ports.
func (s sysfs) device(name string) (Device, error) {
	if !fs.ValidPath(name) || strings.Contains(name, "/") {
		return Device{}, fmt.Errorf("device name %q: %w", name, fs.ErrInvalid)
	}
	d := Device{Name: name, NUMANode: -1}
	var err error
	if d.NodeGUID, err = s.attribute(name, "node_guid"); err != nil {
		return Device{}, err
	}
	// Devices that aren't PCI ones, Soft-RoCE among them, have no NUMA node.
	if numa, err := s.attribute(name, "device", "numa_node"); err == nil {
		if n, err := strconv.Atoi(numa); err == nil && n >= 0 {
			d.NUMANode = n
		}
	}
	ports, err := fs.ReadDir(s.root, path.Join(classPath, name, "ports"))
	if err != nil {
		return Device{}, err
	}
	for _, entry := range ports {
		number, err := strconv.ParseUint(entry.Name(), 10, 8)
		if err != nil {
			continue // not a port
		}
		p, err := s.port(name, int(number))
		if err != nil {
			return Device{}, err
		}
		d.Ports = append(d.Ports, p)
	}
	slices.SortFunc(d.Ports, func(a, b Port) int { return a.Number - b.Number })
	return d, nil
}

func (s sysfs) port(device string, number int) (Port, error) {
	p := Port{Number: number}
	var err error
	if p.State, err = s.attribute(device, "ports", strconv.Itoa(number), "state"); err != nil {
		return Port{}, err
	}
	if p.LinkLayer, err = s.linkLayer(device, number); err != nil {
		return Port{}, err
	}
	entries, err := fs.ReadDir(s.root, path.Join(classPath, device, "ports", strconv.Itoa(number), "gids"))
	if err != nil {
		return Port{}, err
	}
	for _, entry := range entries {
		index, err := strconv.ParseUint(entry.Name(), 10, 16)
		if err != nil {
			continue // not an index
		}
		gid, err := s.gid(device, number, int(index))
		if err != nil || gid.IsUnspecified() {
			continue // a slot that isn't in use; some drivers give an error there
		}
		// Only RoCE has it, and only for a slot in use.
		ndev, err := s.attribute(device, "ports", strconv.Itoa(number), "gid_attrs", "ndevs", entry.Name())
		if err != nil {
			ndev = ""
		}
		p.GIDs = append(p.GIDs, GID{Index: int(index), GID: gid, Interface: ndev})
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return a.Index - b.Index })
	return p, nil
}

func (s sysfs) linkLayer(device string, port int) (string, error) {
	return s.attribute(device, "ports", strconv.Itoa(port), "link_layer")
}

func (s sysfs) gid(device string, port, index int) (netip.Addr, error) {
	text, err := s.attribute(device, "ports", strconv.Itoa(port), "gids", strconv.Itoa(index))
	if err != nil {
		return netip.Addr{}, err
	}
	gid, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, err
	}
	if !gid.Is6() || gid.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("GID %q: %w", text, syscall.EINVAL)
	}
	return gid, nil
}
