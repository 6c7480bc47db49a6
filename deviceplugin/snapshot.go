package deviceplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

const (
	// maxResourceSlots keeps ListAndWatch's answer under the 4 MiB that kubelet
	// takes: an entry is at most 90 bytes or so.
	maxResourceSlots = 32768
	// maxID is kubelet's bound on a device ID, in bytes.
	maxID = 63
	// rdmaCM is rdma_cm's node in /dev/infiniband.
	rdmaCM = "rdma_cm"
)

// device is an RDMA device as a resource has it.
type device struct {
	name  string
	numa  int      // -1: none
	nodes []string // of its own, in /dev/infiniband
	// unhealthy says why it can't be used; "" if it can.
	unhealthy string
	slots     []string // IDs, by number
}

// snapshot is a resource at one moment. It never changes: everything that
// answers one call is from one snapshot.
type snapshot struct {
	devices []device
	// byID has the index of the device of each slot.
	byID map[string]int
	// shared are nodes that every container gets, whichever devices it has.
	shared []string
	cdi    bool
	list   []*pluginapi.Device
}

func newSnapshot(devices []device, shared []string, cdi bool) *snapshot {
	s := &snapshot{devices: devices, byID: map[string]int{}, shared: shared, cdi: cdi}
	for i, d := range devices {
		health := pluginapi.Healthy
		if d.unhealthy != "" {
			health = pluginapi.Unhealthy
		}
		for _, id := range d.slots {
			s.byID[id] = i
			entry := &pluginapi.Device{ID: id, Health: health}
			if d.numa >= 0 {
				entry.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(d.numa)}}}
			}
			s.list = append(s.list, entry)
		}
	}
	return s
}

// sameList tells whether kubelet would see a difference.
func (s *snapshot) sameList(other *snapshot) bool {
	return slices.EqualFunc(s.devices, other.devices, func(a, b device) bool {
		return a.numa == b.numa && (a.unhealthy == "") == (b.unhealthy == "") && slices.Equal(a.slots, b.slots)
	})
}

// named are the devices behind slots, each once, in order; IDs that aren't of
// the resource come back in unknown.
func (s *snapshot) named(ids []string) (devices []*device, unknown []string) {
	var indices []int
	for _, id := range ids {
		if i, ok := s.byID[id]; ok {
			indices = append(indices, i)
		} else {
			unknown = append(unknown, id)
		}
	}
	slices.Sort(indices)
	for _, i := range slices.Compact(indices) {
		devices = append(devices, &s.devices[i])
	}
	return devices, unknown
}

// slotIDs are the IDs of a device's slots: its name and a number, shortened
// where kubelet's bound asks for it.
func slotIDs(device string, n int) []string {
	const suffix = len("-9999")
	if len(device) > maxID-suffix {
		sum := sha256.Sum256([]byte(device))
		tail := "~" + hex.EncodeToString(sum[:6])
		device = device[:maxID-suffix-len(tail)] + tail
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = device + "-" + strconv.Itoa(i)
	}
	return ids
}

// Problem is something that keeps devices from being handed out, or all of them.
type Problem struct {
	// Resource is the name of the resource; "" if it is about none of them alone.
	Resource string
	// Device is the RDMA device; "" if it is about the whole resource.
	Device string
	// Message says what it is, and what to do.
	Message string
}

func (p Problem) String() string {
	out := p.Message
	if p.Device != "" {
		out = "device " + p.Device + ": " + out
	}
	if p.Resource != "" {
		out = "resource " + p.Resource + ": " + out
	}
	return out
}

// resourceDevices makes a resource's devices from those assigned to it. exists
// tells whether /dev/infiniband has a node.
func resourceDevices(r *Resource, assigned []hostDevice, exists func(node string) bool) ([]device, []Problem) {
	var problems []Problem
	n := r.slots()
	if most := maxResourceSlots / max(len(assigned), 1); n > most {
		problems = append(problems, Problem{Resource: r.Name(), Message: fmt.Sprintf(
			"%d devices of %d slots each are more than the %d that a resource can have: each has %d; lower rdmaHcaMax, or make several resources",
			len(assigned), n, maxResourceSlots, most)})
		n = most
	}
	noCM := r.ExposeRDMACM && !exists(rdmaCM)
	if noCM {
		problems = append(problems, Problem{Resource: r.Name(), Message: "exposeRDMACM: there is no /dev/infiniband/rdma_cm: load the kernel module rdma_ucm"})
	}
	devices := make([]device, 0, len(assigned))
	for i := range assigned {
		d, problem := resourceDevice(r, &assigned[i], n)
		if problem != "" {
			problems = append(problems, Problem{Resource: r.Name(), Device: d.name, Message: problem})
		}
		if noCM && d.unhealthy == "" {
			d.unhealthy = "no rdma_cm"
		}
		devices = append(devices, d)
	}
	return devices, problems
}

// resourceDevice is one of them. The problem is what somebody has to mend; a
// port that is down isn't one.
func resourceDevice(r *Resource, h *hostDevice, slots int) (out device, problem string) {
	out = device{name: h.Name, numa: h.NUMANode, slots: slotIDs(h.Name, slots)}
	if h.UVerbs == "" {
		problem = "has no uverbs node: load the kernel module ib_uverbs, and look at dmesg for the driver's complaint"
	} else {
		out.nodes = append(out.nodes, h.UVerbs)
	}
	if r.ExposeUMAD { // of devices that have any: RoCE needs none
		out.nodes = append(out.nodes, h.umads...)
	}
	if r.CDI && problem == "" && !cdiDevice.MatchString(h.Name) {
		problem = "CDI has no such device names: rename it (rdma dev set), or set cdi to false"
	}
	out.unhealthy = problem
	if problem == "" && !usable(h.Ports) {
		out.unhealthy = "no port is active"
	}
	return out, problem
}

// usable tells whether one port is active: more can't be told of a device that
// is handed out whole.
func usable(ports []rdma.Port) bool {
	return slices.ContainsFunc(ports, func(p rdma.Port) bool {
		return p.State == rdma.PortActive || p.State == rdma.PortActiveDefer
	})
}

// gateSnapshot is the resource without a device.
func gateSnapshot() *snapshot {
	return newSnapshot([]device{{name: "gate", numa: -1, slots: slotIDs("gate", DefaultSlots)}}, nil, false)
}
