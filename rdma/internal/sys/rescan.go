package sys

import "reflect"

// inventory is what a rescan compares.
type inventory struct {
	devices []Device
	pkeys   [][]uint16 // of each InfiniBand port
	err     string     // "" none
}

func (i inventory) same(other inventory) bool { return reflect.DeepEqual(i, other) }

// ahead is how far beyond a RoCE port's last GID in use a rescan looks.
const ahead = 8

// inventory looks at every device, less thoroughly where it did before: a RoCE
// port's table has hundreds of entries, of which the kernel takes the first
// free one for a new GID (find_gid in drivers/infiniband/core/cache.c). So
// nothing comes to one far beyond those that are in use.
func (k kernel) inventory(last inventory) inventory {
	with := k.sysfs.everything()
	whole := with.indices
	with.indices = func(device string, port int) []int {
		if known := last.port(device, port); known != nil && known.LinkLayer == linkLayerEthernet {
			return upTo(known.GIDs)
		}
		return whole(device, port)
	}
	devices, err := k.devices(nil, with)
	if err != nil {
		return inventory{err: err.Error()}
	}
	now := inventory{devices: devices}
	for _, d := range devices {
		for _, p := range d.Ports {
			if p.LinkLayer == linkLayerEthernet {
				continue // the default partition alone
			}
			table, err := k.PKeys(d.Name, p.Number)
			if err != nil {
				table = nil // gone, or not to be read: nothing to compare
			}
			now.pkeys = append(now.pkeys, table)
		}
	}
	return now
}

// linkLayerEthernet is RoCE's, as sysfs prints it.
const linkLayerEthernet = "Ethernet"

// port is a port as it was, nil if it wasn't there.
func (i inventory) port(device string, number int) *Port {
	for _, d := range i.devices {
		if d.Name != device {
			continue
		}
		for _, p := range d.Ports {
			if p.Number == number {
				return &p
			}
		}
	}
	return nil
}

// upTo are the indices up to the last GID in use, and some more.
func upTo(gids []GID) []int {
	end := ahead
	if len(gids) > 0 {
		end += gids[len(gids)-1].Index + 1
	}
	indices := make([]int, min(end, maxIndex+1))
	for i := range indices {
		indices[i] = i
	}
	return indices
}
