package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysfs reads /sys/class/infiniband. prometheus/procfs has a reader for it,
// but that one reads every counter of every port and fails on a driver's
// unusual one; these few attributes are all that is needed.
//
// Drivers differ in what they have, and a device may go while it is read: an
// attribute that can't be read is unknown, and only a device that isn't there
// in the end is an error.
type sysfs struct{ root fs.FS } // rooted at /sys

const (
	classPath  = "class/infiniband"
	uverbsPath = "class/infiniband_verbs"
	// maxAttribute is a page, the most that sysfs ever gives for an attribute.
	maxAttribute = 4096
	maxPort      = 1<<8 - 1  // u8 in rdma_cm's ABI
	maxIndex     = 1<<16 - 1 // of GID and P_Key tables: u16 in the verbs' ABI
)

// sysRoot is the folder of a sysfs. A table of GIDs has hundreds of files:
// they are read without what os.File does for descriptors that are kept.
type sysRoot string

func (r sysRoot) Open(name string) (fs.File, error) { return os.DirFS(string(r)).Open(name) }

// ReadFile reads an attribute: sysfs gives the whole of it to one read.
func (r sysRoot) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	full := string(r) + "/" + name
	fd, err := unix.Open(full, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: full, Err: err}
	}
	defer unix.Close(fd)
	var b [maxAttribute]byte
	for {
		n, err := unix.Read(fd, b[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: full, Err: err}
		}
		return slices.Clone(b[:n]), nil
	}
}

// attribute reads one attribute of a device, without the newline.
func (s sysfs) attribute(device string, elem ...string) (string, error) {
	if err := checkName(device); err != nil {
		return "", err
	}
	return s.read(classPath, device, path.Join(elem...))
}

func (s sysfs) read(elem ...string) (string, error) {
	b, err := fs.ReadFile(s.root, path.Join(elem...))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b[:min(len(b), maxAttribute)])), nil
}

// known is an attribute's text, "" where it can't be read.
func (s sysfs) known(device string, elem ...string) string {
	text, err := s.attribute(device, elem...)
	if err != nil {
		return ""
	}
	return text
}

// numbers lists the entries of a device's folder that are numbers up to limit,
// in order: its ports, or the indices of a port's table.
func (s sysfs) numbers(limit int, device string, elem ...string) ([]int, error) {
	if err := checkName(device); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(s.root, path.Join(classPath, device, path.Join(elem...)))
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err == nil && n >= 0 && n <= limit && strconv.Itoa(n) == e.Name() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func checkName(device string) error {
	if !fs.ValidPath(device) || device == "." || strings.Contains(device, "/") {
		return fmt.Errorf("device name %q: %w", device, fs.ErrInvalid)
	}
	return nil
}

// scan is what the devices are read with.
type scan struct {
	uverbs map[string]string
	// indices are those of a port's GID table to look at.
	indices func(device string, port int) []int
}

// everything reads devices whole.
func (s sysfs) everything() scan {
	return scan{uverbs: s.uverbs(), indices: func(device string, port int) []int {
		indices, err := s.numbers(maxIndex, device, portDir(port), "gids")
		if err != nil {
			return nil // no table, or gone
		}
		return indices
	}}
}

// device reads a device with its ports.
func (s sysfs) device(name string, with scan) (Device, error) {
	if err := checkName(name); err != nil {
		return Device{}, err
	}
	d := Device{Name: name, NodeGUID: s.known(name, "node_guid"), NUMANode: -1, UVerbs: with.uverbs[name]}
	if kind, err := s.attribute(name, "node_type"); err == nil {
		d.NodeType = kind
	}
	// Devices that aren't PCI ones, Soft-RoCE among them, have no NUMA node.
	if n, err := strconv.Atoi(s.known(name, "device/numa_node")); err == nil && n >= 0 {
		d.NUMANode = n
	}
	ports, err := s.numbers(maxPort, name, "ports")
	if err != nil {
		ports = nil
	}
	for _, number := range ports {
		if number > 0 {
			d.Ports = append(d.Ports, s.port(name, number, with.indices(name, number)))
		}
	}
	// One that went meanwhile was read in part.
	if _, err := fs.Stat(s.root, path.Join(classPath, name)); err != nil {
		return Device{}, err
	}
	return d, nil
}

func (s sysfs) port(device string, number int, indices []int) Port {
	dir := portDir(number)
	p := Port{
		Number:    number,
		State:     s.known(device, dir, "state"),
		LinkLayer: s.known(device, dir, "link_layer"),
	}
	for _, index := range indices {
		// Some drivers give an error for a slot that isn't in use.
		if gid, err := s.gid(device, number, index); err == nil && !gid.GID.IsUnspecified() {
			p.GIDs = append(p.GIDs, gid)
		}
	}
	return p
}

func portDir(number int) string { return "ports/" + strconv.Itoa(number) }

func (s sysfs) linkLayer(device string, port int) (string, error) {
	return s.attribute(device, portDir(port), "link_layer")
}

// gid reads an entry of a port's GID table: all zeros where it isn't in use.
func (s sysfs) gid(device string, port, index int) (GID, error) {
	dir, slot := portDir(port), strconv.Itoa(index)
	text, err := s.attribute(device, dir, "gids", slot)
	if err != nil {
		return GID{}, err
	}
	gid, err := netip.ParseAddr(text)
	if err != nil {
		return GID{}, err
	}
	if !gid.Is6() || gid.Zone() != "" {
		return GID{}, fmt.Errorf("GID %q: %w", text, syscall.EINVAL)
	}
	g := GID{Index: index, GID: gid}
	if gid.IsUnspecified() {
		return g, nil
	}
	// The kernel has both for a slot in use alone, and no interface on InfiniBand.
	g.Type = s.known(device, dir, "gid_attrs/types", slot)
	g.Interface = s.known(device, dir, "gid_attrs/ndevs", slot)
	return g, nil
}

// pkeys reads a port's P_Key table by index; 0, which is no P_Key, where an
// entry isn't in use or can't be read. A port without the table has none.
func (s sysfs) pkeys(device string, port int) ([]uint16, error) {
	dir := portDir(port)
	indices, err := s.numbers(maxIndex, device, dir, "pkeys")
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fs.Stat(s.root, path.Join(classPath, device, dir))
	}
	if err != nil || len(indices) == 0 {
		return nil, err
	}
	table := make([]uint16, indices[len(indices)-1]+1)
	for _, index := range indices {
		pkey, err := strconv.ParseUint(s.known(device, dir, "pkeys", strconv.Itoa(index)), 0, 16)
		if err == nil {
			table[index] = uint16(pkey)
		}
	}
	return table, nil
}

// uverbs gives the verbs device of each RDMA device that has one.
func (s sysfs) uverbs() map[string]string {
	devices := map[string]string{}
	entries, err := fs.ReadDir(s.root, uverbsPath)
	if err != nil {
		return devices // the module ib_uverbs isn't loaded
	}
	for _, e := range entries {
		// Beside them is the class's own abi_version.
		if !strings.HasPrefix(e.Name(), "uverbs") {
			continue
		}
		if name, err := s.read(uverbsPath, e.Name(), "ibdev"); err == nil {
			devices[name] = e.Name()
		}
	}
	return devices
}
