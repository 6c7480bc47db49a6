package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// candidate is a device while slots are chosen.
type candidate struct {
	*device
	free   []string // slots to choose from, the next one first
	chosen int      // slots that the allocation has of it
	near   bool     // on a NUMA node of what must be included
	used   int      // slots that others have
}

// prefer chooses slots for a container: devices that it has no slot of yet
// before second slots, on the NUMA nodes of what must be included before others,
// and of equals those with the fewest slots handed out. It is advice: an ID that
// isn't known any more is passed over, and fewer than asked for is no error,
// since kubelet would refuse the pod for good.
func (s *snapshot) prefer(request *pluginapi.ContainerPreferredAllocationRequest) ([]string, error) {
	must, size := request.MustIncludeDeviceIDs, int(request.AllocationSize)
	available := map[string]bool{}
	for _, id := range request.AvailableDeviceIDs {
		available[id] = true
	}
	chosen := make([]string, 0, min(max(size, 0), len(available)))
	for _, id := range must {
		if !available[id] {
			return nil, invalid("GetPreferredAllocation: %.80q must be included and isn't available", id)
		}
		if !slices.Contains(chosen, id) {
			chosen = append(chosen, id)
		}
	}
	if size < len(chosen) {
		return nil, invalid("GetPreferredAllocation: allocation size %d: %d must be included", size, len(chosen))
	}
	candidates := s.candidates(available, chosen)
	for len(chosen) < size {
		best := -1
		for i := range candidates {
			if len(candidates[i].free) > 0 && (best < 0 || candidates[i].before(&candidates[best])) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		c := &candidates[best]
		chosen = append(chosen, c.free[0])
		c.free = c.free[1:]
		c.chosen++
	}
	return chosen, nil
}

// candidates are the devices that have slots among those available.
func (s *snapshot) candidates(available map[string]bool, must []string) []candidate {
	included := map[string]bool{}
	perDevice := map[int]int{}
	near := map[int]bool{}
	for _, id := range must {
		included[id] = true
		if i, ok := s.byID[id]; ok {
			perDevice[i]++
			if numa := s.devices[i].numa; numa >= 0 {
				near[numa] = true
			}
		}
	}
	var out []candidate
	for i := range s.devices {
		d := &s.devices[i]
		c := candidate{device: d, chosen: perDevice[i], near: near[d.numa]}
		for _, id := range d.slots {
			switch {
			case included[id]:
			case available[id]:
				c.free = append(c.free, id)
			default:
				c.used++
			}
		}
		out = append(out, c)
	}
	return out
}

func (c *candidate) before(other *candidate) bool {
	near := func(c *candidate) int {
		if c.near {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(c.chosen, other.chosen),
		cmp.Compare(near(c), near(other)),
		cmp.Compare(c.used, other.used),
		cmp.Compare(c.name, other.name)) < 0
}

func invalid(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf(format, args...))
}
