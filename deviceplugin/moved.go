package deviceplugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// portKey is a port of a device; one that was taken away and came back under
// the same name is another device if its GUID is another.
type portKey struct {
	Device, GUID string
	Port         int
}

// moved remembers the interfaces of ports: one that is moved into a pod can't be
// seen from here any more, and its device is in use, not gone. The file has them
// for the next start; it lies on a tmpfs, so that a boot begins anew.
type moved struct {
	path  string
	ports map[portKey][]string
}

// movedPort is a port in the file.
type movedPort struct {
	portKey
	Interfaces []string
}

// maxMoved bounds the file, in bytes; a port takes about a hundred.
const maxMoved = 1 << 20

// openMoved reads the file, if there is one. With an error it begins anew.
func openMoved(path string) (*moved, error) {
	m := &moved{path: path, ports: map[portKey][]string{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	var list []movedPort
	if err := json.NewDecoder(io.LimitReader(f, maxMoved)).Decode(&list); err != nil {
		return m, fmt.Errorf("%s: %w: interfaces that are in pods already aren't known by name until they come back", path, err)
	}
	for _, p := range list {
		m.ports[p.portKey] = p.Interfaces
	}
	return m, nil
}

// update takes in what the ports of all devices have now: a port that has no
// interface keeps its last ones, one that is gone none. An error is about the
// file alone.
func (m *moved) update(devices []rdma.Device) error {
	now := map[portKey][]string{}
	for _, d := range devices {
		for _, p := range d.Ports {
			key := portKey{d.Name, d.NodeGUID, p.Number}
			if len(p.Interfaces) > 0 {
				now[key] = p.Interfaces
			} else if last := m.ports[key]; len(last) > 0 {
				now[key] = last
			}
		}
	}
	if maps.EqualFunc(now, m.ports, slices.Equal[[]string]) {
		return nil
	}
	m.ports = now
	list := make([]movedPort, 0, len(now))
	for key, interfaces := range now {
		list = append(list, movedPort{key, interfaces})
	}
	slices.SortFunc(list, func(a, b movedPort) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.GUID, b.GUID), cmp.Compare(a.Port, b.Port))
	})
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return replaceFile(m.path, text, 0o600)
}

// interfaces are those of all ports of a device, in order.
func (m *moved) interfaces(d *rdma.Device) []string {
	var out []string
	for _, p := range d.Ports {
		out = append(out, m.ports[portKey{d.Name, d.NodeGUID, p.Number}]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// replaceFile writes a file aside and renames it, so that readers see the old
// one or the new one whole.
func replaceFile(path string, text []byte, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
