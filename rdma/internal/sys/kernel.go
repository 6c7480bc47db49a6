package sys

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// kernel is the running kernel.
type kernel struct {
	sysfs  sysfs
	names  func(NetNS) (map[uint32]string, error)
	rescan time.Duration
}

// Option changes what New gives.
type Option func(*kernel)

// RescanEvery sets how often a device watch looks for what the kernel tells
// nobody, instead of every 10 s.
func RescanEvery(interval time.Duration) Option {
	return func(k *kernel) { k.rescan = interval }
}

// New is the running kernel.
func New(options ...Option) Kernel {
	k := kernel{sysfs: sysfs{root: sysRoot("/sys")}, names: deviceNames, rescan: rescanEvery}
	for _, o := range options {
		o(&k)
	}
	return k
}

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

func (k kernel) DeviceNames(ns NetNS) (map[uint32]string, error) { return k.names(ns) }

func (k kernel) Devices(ns NetNS) ([]Device, error) {
	return k.devices(ns, k.sysfs.everything())
}

func (k kernel) devices(ns NetNS, with scan) ([]Device, error) {
	names, err := k.names(ns)
	if err != nil {
		return nil, err
	}
	var devices []Device
	for _, name := range names {
		d, err := k.sysfs.device(name, with)
		if gone(err) {
			continue // since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("RDMA device %s: %w", name, err)
		}
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	return devices, nil
}

// gone tells the errors of an attribute whose device went: before it was
// opened, and before it was read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

func (k kernel) LinkLayer(device string, port int) (string, error) {
	return k.sysfs.linkLayer(device, port)
}

func (k kernel) GID(device string, port, index int) (GID, error) {
	return k.sysfs.gid(device, port, index)
}

func (k kernel) PKeys(device string, port int) ([]uint16, error) {
	return k.sysfs.pkeys(device, port)
}

func (kernel) IGMP(ns NetNS, link string) (map[netip.Addr]int, error) { return igmp(ns, link) }

func (kernel) WatchLinks(ns NetNS) (Watch, error) {
	w, err := watchLinks(ns)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (k kernel) WatchDevices() (Watch, error) {
	w, err := k.watchDevices()
	if err != nil {
		return nil, err
	}
	return w, nil
}
