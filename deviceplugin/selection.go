package deviceplugin

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// hostDevice is an RDMA device with everything that selectors ask about.
type hostDevice struct {
	rdma.Device
	pci        pciAttributes
	interfaces []string // of all ports, those moved into pods included
	umads      []string
}

// matches tells whether a device belongs to a resource.
func (r *Resource) matches(d *hostDevice) bool {
	s := &r.Selectors
	var types, layers []string
	for _, p := range d.Ports {
		layers = append(layers, string(p.LinkLayer))
		if p.LinkLayer == rdma.LinkLayerEthernet {
			types = append(types, "ether")
		} else {
			types = append(types, strings.ToLower(string(p.LinkLayer)))
		}
	}
	return anyMatch(s.Vendors, d.pci.vendor) &&
		anyMatch(s.DeviceIDs, d.pci.device) &&
		anyMatch(s.Drivers, d.pci.driver) &&
		anyMatch(s.PCIAddresses, d.pci.address) &&
		anyMatch(s.RDMADevices, d.Name) &&
		anyMatch(s.IfNames, d.interfaces...) &&
		anyMatch(r.Devices, d.interfaces...) &&
		anyMatch(s.LinkTypes, types...) &&
		anyMatch(s.LinkLayers, layers...)
}

// anyMatch tells whether one of the values matches one of the patterns; no
// patterns match everything. Patterns were checked by Parse.
func anyMatch(patterns []string, values ...string) bool {
	if len(patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(values, func(value string) bool {
			ok, err := path.Match(pattern, value)
			return err == nil && ok
		})
	})
}

// ConflictError is a device that several resources select. None of them gets it,
// since kubelet would hand out the same slots twice.
type ConflictError struct {
	Device    string
	Resources []string
}

func (e *ConflictError) Error() string {
	return "device " + e.Device + ": " + e.message()
}

func (e *ConflictError) message() string {
	return fmt.Sprintf("selected by resources %s: narrow their selectors (rdmaDevices or pciAddresses name single devices), so that one of them has it",
		strings.Join(e.Resources, ", "))
}

// assign sorts devices to the resources of a configuration, in order.
func assign(config *Config, devices []hostDevice) (assigned [][]hostDevice, conflicts []*ConflictError) {
	assigned = make([][]hostDevice, len(config.ConfigList))
	for i := range devices {
		var to []int
		for j := range config.ConfigList {
			if config.ConfigList[j].matches(&devices[i]) {
				to = append(to, j)
			}
		}
		switch len(to) {
		case 0:
		case 1:
			assigned[to[0]] = append(assigned[to[0]], devices[i])
		default:
			conflict := &ConflictError{Device: devices[i].Name}
			for _, j := range to {
				conflict.Resources = append(conflict.Resources, config.ConfigList[j].Name())
			}
			conflicts = append(conflicts, conflict)
		}
	}
	return assigned, conflicts
}
