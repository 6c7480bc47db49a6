package sys

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
)

// kernel is the running kernel.
type kernel struct{ sysfs sysfs }

// New is the running kernel.
func New() Kernel { return kernel{sysfs: sysfs{root: os.DirFS("/sys")}} }

func (kernel) OpenCM() (CM, error) {
	c, err := openCM(CMPath)
	if err != nil {
		return nil, err // not c: a nil *cm is no nil CM
	}
	return c, nil
}

func (kernel) OpenNetNS(path string) (NetNS, error) {
	ns, err := openNetNS(path)
	if err != nil {
		return nil, err
	}
	return ns, nil
}

func (kernel) Links(ns NetNS) ([]Link, error) { return links(ns) }

func (kernel) DeviceNames(ns NetNS) (map[uint32]string, error) { return deviceNames(ns) }

func (k kernel) Devices() ([]Device, error) {
	names, err := deviceNames(nil)
	if err != nil {
		return nil, err
	}
	var devices []Device
	for _, name := range names {
		d, err := k.sysfs.device(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("RDMA device %s: %w", name, err)
		}
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	return devices, nil
}

func (k kernel) LinkLayer(device string, port int) (string, error) {
	return k.sysfs.linkLayer(device, port)
}

func (k kernel) GID(device string, port, index int) (netip.Addr, error) {
	return k.sysfs.gid(device, port, index)
}
