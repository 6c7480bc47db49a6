package deviceplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	// ContainerDir is where containers have the directories of their allocations,
	// each by the resource's name without its prefix.
	ContainerDir = "/run/rdma-multicast"
	// AnnotationPrefix, and the resource's name without its prefix, is the key of
	// the annotation that Allocate gives a container: the base name of the
	// allocation's directory. NRI shows it when the container is created.
	AnnotationPrefix = "allocation." + Prefix + "/"

	permissions = "rw"
)

// nodePath is where a node of /dev/infiniband is, on the host and in containers.
func nodePath(node string) string { return "/dev/infiniband/" + node }

// Allocation is what a container has been given of one resource.
type Allocation struct {
	// Resource is the resource's full name.
	Resource string
	// DeviceIDs are the slots, sorted.
	DeviceIDs []string
	// Devices are the RDMA devices behind them by name, in order; none for the
	// gate, and not those that have gone since.
	Devices []string
	// Dir is the allocation's directory on the host, which the container has under
	// ContainerDir, read-only.
	Dir string
}

// directories are those of the allocations, under one that only root may enter:
// containers see theirs alone, as a mount.
type directories struct {
	root string
	mu   sync.Mutex
}

// path is where the directory of some slots of a resource is: always the same
// for the same ones.
func (d *directories) path(resource string, ids []string) string {
	sorted := slices.Sorted(slices.Values(ids))
	sum := sha256.Sum256([]byte(resource + "\n" + strings.Join(slices.Compact(sorted), "\n")))
	return filepath.Join(d.root, hex.EncodeToString(sum[:16]))
}

// renew makes a directory anew. A new one, not the old one emptied: a container
// that ended late still has the old one, and must not see what comes.
func (d *directories) renew(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return d.make(dir)
}

func (d *directories) exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// ensure makes a directory unless it is there.
func (d *directories) ensure(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.exists(dir) {
		return nil
	}
	return d.make(dir)
}

func (d *directories) make(dir string) error {
	if err := os.MkdirAll(d.root, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) // for any user in the container, whatever our umask
}

// retain removes the directories that keep doesn't want and that haven't changed
// for some time.
func (d *directories) retain(age time.Duration, keep func(dir string) bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.root)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(d.root, e.Name())
		if name, err := hex.DecodeString(e.Name()); err != nil || len(name) != 16 {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) >= age && !keep(dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// allocate answers for one container.
func (s *snapshot) allocate(resource, dir string, devices []*device) *pluginapi.ContainerAllocateResponse {
	name := path.Base(resource)
	out := &pluginapi.ContainerAllocateResponse{
		Mounts: []*pluginapi.Mount{{
			ContainerPath: path.Join(ContainerDir, name),
			HostPath:      dir,
			ReadOnly:      true,
		}},
		Annotations: map[string]string{AnnotationPrefix + name: filepath.Base(dir)},
	}
	var nodes []string
	for _, d := range devices {
		if s.cdi {
			out.CdiDevices = append(out.CdiDevices, &pluginapi.CDIDevice{Name: cdiName(resource, d.name)})
		} else {
			nodes = append(nodes, d.nodes...)
		}
	}
	if !s.cdi {
		nodes = append(nodes, s.shared...)
	}
	for _, node := range nodes {
		out.Devices = append(out.Devices, &pluginapi.DeviceSpec{
			ContainerPath: nodePath(node), HostPath: nodePath(node), Permissions: permissions,
		})
	}
	return out
}
