package deviceplugin

import (
	"bufio"
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// pciAttributes are what the bus tells about the hardware of an RDMA device.
// Everything is "" of a device that has none underneath, as software NICs.
type pciAttributes struct {
	address, vendor, device, driver string
}

// sysfs reads what rdma's inventory doesn't have: attributes of the bus and
// the umad nodes. An attribute that can't be read is unknown, never an error:
// a device may go while it is looked at.
type sysfs struct{ root fs.FS } // rooted at /sys

const (
	maxAttribute = 4096 // bytes: a page is the most that sysfs ever gives
	maxNodes     = 4096 // umad nodes
)

// pci reads the attributes of the device underneath an RDMA device from its
// uevent file, which names the driver also where the bus isn't PCI.
func (s sysfs) pci(rdmaDevice string) pciAttributes {
	var out pciAttributes
	text, err := s.read("class/infiniband", rdmaDevice, "device/uevent")
	if err != nil {
		return out
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "=")
		switch key {
		case "DRIVER":
			out.driver = value
		case "PCI_SLOT_NAME":
			out.address = strings.ToLower(value)
		case "PCI_ID":
			vendor, device, _ := strings.Cut(strings.ToLower(value), ":")
			out.vendor, out.device = pad(vendor), pad(device)
		}
	}
	return out
}

// pad gives an ID the leading zeros that the kernel's %X in uevent may lack.
func pad(id string) string {
	if len(id) >= 4 || id == "" {
		return id
	}
	return "0000"[len(id):] + id
}

// umads are the umad nodes by RDMA device, in order: one for each port.
// None where the module ib_umad isn't loaded.
func (s sysfs) umads() map[string][]string {
	const class = "class/infiniband_mad"
	entries, err := fs.ReadDir(s.root, class)
	if err != nil {
		return nil
	}
	out := map[string][]string{}
	for _, e := range entries[:min(len(entries), maxNodes)] {
		if !strings.HasPrefix(e.Name(), "umad") {
			continue
		}
		if text, err := s.read(class, e.Name(), "ibdev"); err == nil {
			device := strings.TrimSpace(string(text))
			out[device] = append(out[device], e.Name())
		}
	}
	for _, nodes := range out {
		slices.Sort(nodes)
	}
	return out
}

func (s sysfs) read(elem ...string) ([]byte, error) {
	f, err := s.root.Open(path.Join(elem...))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxAttribute))
}
