package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }

// fixture is an InfiniBand and RoCE card of two ports, and Soft-RoCE, as sysfs
// shows them.
func fixture() fstest.MapFS {
	const zero = "0000:0000:0000:0000:0000:0000:0000:0000"
	return fstest.MapFS{
		"class/infiniband/mlx5_0/node_guid":                file("9803:9b03:005e:1de2"),
		"class/infiniband/mlx5_0/device/numa_node":         file("1"),
		"class/infiniband/mlx5_0/ports/1/state":            file("4: ACTIVE"),
		"class/infiniband/mlx5_0/ports/1/link_layer":       file("InfiniBand"),
		"class/infiniband/mlx5_0/ports/1/gids/0":           file("fe80:0000:0000:0000:9803:9b03:005e:1de2"),
		"class/infiniband/mlx5_0/ports/1/gids/1":           file(zero),
		"class/infiniband/mlx5_0/ports/1/pkeys/0":          file("0xffff"),
		"class/infiniband/mlx5_0/ports/1/pkeys/1":          file("0x0000"),
		"class/infiniband/mlx5_0/ports/1/pkeys/10":         file("0x8001"),
		"class/infiniband/mlx5_0/ports/2/state":            file("1: DOWN"),
		"class/infiniband/mlx5_0/ports/2/link_layer":       file("Ethernet"),
		"class/infiniband/mlx5_0/ports/2/gids/0":           file(zero),
		"class/infiniband/rxe0/node_guid":                  file("5054:00ff:fe12:3456"),
		"class/infiniband/rxe0/ports/1/state":              file("4: ACTIVE"),
		"class/infiniband/rxe0/ports/1/link_layer":         file("Ethernet"),
		"class/infiniband/rxe0/ports/1/gids/0":             file("fe80:0000:0000:0000:5054:00ff:fe12:3456"),
		"class/infiniband/rxe0/ports/1/gids/1":             file(zero),
		"class/infiniband/rxe0/ports/1/gids/2":             file("0000:0000:0000:0000:0000:ffff:0a00:0002"),
		"class/infiniband/rxe0/ports/1/gids/10":            file("0000:0000:0000:0000:0000:ffff:0a00:0003"),
		"class/infiniband/rxe0/ports/1/gid_attrs/types/0":  file("IB/RoCE v1"),
		"class/infiniband/rxe0/ports/1/gid_attrs/types/2":  file("RoCE v2"),
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0":  file("eth0"),
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/2":  file("eth0"),
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/10": file("eth0.7"),
		"class/infiniband_verbs/abi_version":               file("6"),
		"class/infiniband_verbs/uverbs1/ibdev":             file("mlx5_0"),
	}
}

// broken is a sysfs in which some attributes can't be read.
type broken struct {
	fstest.MapFS
	errs map[string]error // by path; "*" at the end: everything that begins so
}

func (b broken) ReadFile(name string) ([]byte, error) {
	for path, err := range b.errs {
		if prefix, all := strings.CutSuffix(path, "*"); name == path || all && strings.HasPrefix(name, prefix) {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
	}
	return b.MapFS.ReadFile(name)
}

func sameAddr(a, b netip.Addr) bool { return a == b }

func gid(index int, gid, kind, link string) GID {
	return GID{Index: index, GID: netip.MustParseAddr(gid), Type: kind, Interface: link}
}

// The fixture's devices as they are to be read.
func mlx5() Device {
	return Device{Name: "mlx5_0", NodeGUID: "9803:9b03:005e:1de2", NUMANode: 1, UVerbs: "uverbs1", Ports: []Port{
		{Number: 1, LinkLayer: "InfiniBand", State: "4: ACTIVE", GIDs: []GID{gid(0, "fe80::9803:9b03:5e:1de2", "", "")}},
		{Number: 2, LinkLayer: "Ethernet", State: "1: DOWN"},
	}}
}

func rxe() Device {
	return Device{Name: "rxe0", NodeGUID: "5054:00ff:fe12:3456", NUMANode: -1, Ports: []Port{
		{Number: 1, LinkLayer: "Ethernet", State: "4: ACTIVE", GIDs: []GID{
			gid(0, "fe80::5054:ff:fe12:3456", "IB/RoCE v1", "eth0"),
			gid(2, "::ffff:10.0.0.2", "RoCE v2", "eth0"),
			gid(10, "::ffff:10.0.0.3", "", "eth0.7"),
		}},
	}}
}

func TestSysfsDevice(t *testing.T) {
	const rxe0 = "class/infiniband/rxe0/"
	for _, tt := range []struct {
		name   string
		device Device
		errs   map[string]error
		change func(*Device)
	}{
		{"InfiniBand and RoCE on one card", mlx5(), nil, func(*Device) {}},
		{"Soft-RoCE, without verbs in user space", rxe(), nil, func(*Device) {}},
		{
			"the class of verbs devices can't be read", mlx5(), map[string]error{"class/infiniband_verbs/*": syscall.EIO},
			func(d *Device) { d.UVerbs = "" },
		},
		{
			"no node GUID", rxe(), map[string]error{rxe0 + "node_guid": syscall.EIO},
			func(d *Device) { d.NodeGUID = "" },
		},
		{
			"no state", rxe(), map[string]error{rxe0 + "ports/1/state": syscall.EINVAL},
			func(d *Device) { d.Ports[0].State = "" },
		},
		{
			"no link layer", rxe(), map[string]error{rxe0 + "ports/1/link_layer": syscall.EINVAL},
			func(d *Device) { d.Ports[0].LinkLayer = "" },
		},
		{
			"an entry of the GID table can't be read", rxe(), map[string]error{rxe0 + "ports/1/gids/2": syscall.EINVAL},
			func(d *Device) { d.Ports[0].GIDs = slices.Delete(d.Ports[0].GIDs, 1, 2) },
		},
		{
			"GIDs without type and interface", rxe(), map[string]error{rxe0 + "ports/1/gid_attrs/*": syscall.EINVAL},
			func(d *Device) {
				for i := range d.Ports[0].GIDs {
					d.Ports[0].GIDs[i].Type, d.Ports[0].GIDs[i].Interface = "", ""
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sysfs{root: broken{fixture(), tt.errs}}
			got, err := s.device(tt.device.Name, s.everything())
			if err != nil {
				t.Fatal(err)
			}
			tt.change(&tt.device)
			if diff := cmp.Diff(tt.device, got, cmp.Comparer(sameAddr)); diff != "" {
				t.Errorf("device (-want +got):\n%s", diff)
			}
		})
	}
}

// A GUID of zeros, as a card without firmware has it, is the device's all the same.
func TestSysfsZeroNodeGUID(t *testing.T) {
	root := fixture()
	root["class/infiniband/rxe0/node_guid"] = file("0000:0000:0000:0000")
	s := sysfs{root: root}
	d, err := s.device("rxe0", s.everything())
	if err != nil || d.NodeGUID != "0000:0000:0000:0000" || len(d.Ports) != 1 {
		t.Errorf("got %+v, error %v", d, err)
	}
}

func TestSysfsPKeys(t *testing.T) {
	const dir = "class/infiniband/mlx5_0/ports/1/pkeys/"
	for _, tt := range []struct {
		name   string
		device string
		port   int
		change func(broken)
		want   []uint16
	}{
		{"sparse table", "mlx5_0", 1, func(broken) {}, []uint16{0: 0xffff, 10: 0x8001}},
		{"no table", "rxe0", 1, func(broken) {}, nil},
		{"an entry can't be read", "mlx5_0", 1, func(b broken) { b.errs[dir+"0"] = syscall.EIO }, []uint16{10: 0x8001}},
		{"an entry is too large", "mlx5_0", 1, func(b broken) { b.MapFS[dir+"10"] = file("0x18001") }, []uint16{0: 0xffff, 10: 0}},
		{"an index that no table has", "mlx5_0", 1, func(b broken) { b.MapFS[dir+"65536"] = file("0x8002") }, []uint16{0: 0xffff, 10: 0x8001}},
		{"other files", "mlx5_0", 1, func(b broken) { b.MapFS[dir+"011"] = file("0x8002") }, []uint16{0: 0xffff, 10: 0x8001}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := broken{fixture(), map[string]error{}}
			tt.change(b)
			got, err := sysfs{root: b}.pkeys(tt.device, tt.port)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %#x, error %v, want %#x", got, err, tt.want)
			}
		})
	}
	for device, port := range map[string]int{"mlx5_9": 1, "rxe0": 2} {
		if got, err := (sysfs{root: fixture()}).pkeys(device, port); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s port %d: got %#x, error %v, want fs.ErrNotExist", device, port, got, err)
		}
	}
}

func TestSysfsGID(t *testing.T) {
	s := sysfs{root: fixture()}
	for _, want := range []GID{
		gid(2, "::ffff:10.0.0.2", "RoCE v2", "eth0"),
		gid(1, "::", "", ""), // not in use
	} {
		if got, err := s.gid("rxe0", 1, want.Index); err != nil || got != want {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
	}
	if got, err := s.gid("rxe0", 1, 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an index beyond the table: got %+v, error %v, want fs.ErrNotExist", got, err)
	}
}

// vanishing is a sysfs whose device goes once its node GUID was read.
type vanishing struct{ fstest.MapFS }

func (v vanishing) ReadFile(name string) ([]byte, error) {
	b, err := v.MapFS.ReadFile(name)
	for path := range v.MapFS {
		if strings.HasPrefix(path, "class/infiniband/rxe0/") {
			delete(v.MapFS, path)
		}
	}
	return b, err
}

func TestSysfsErrors(t *testing.T) {
	s := sysfs{root: fixture()}
	if _, err := s.device("mlx5_9", s.everything()); !gone(err) {
		t.Errorf("a device that doesn't exist: got error %v, want fs.ErrNotExist", err)
	}
	going := sysfs{root: vanishing{fixture()}}
	if d, err := going.device("rxe0", going.everything()); !gone(err) {
		t.Errorf("a device that goes while it is read: got %+v, error %v, want fs.ErrNotExist", d, err)
	}
	for _, name := range []string{"", ".", "..", "../net", "mlx5_0/ports"} {
		if _, err := s.device(name, s.everything()); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("device %q: got error %v, want fs.ErrInvalid", name, err)
		}
		if _, err := s.pkeys(name, 1); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("P_Keys of device %q: got error %v, want fs.ErrInvalid", name, err)
		}
		if _, err := s.linkLayer(name, 1); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("link layer of device %q: got error %v, want fs.ErrInvalid", name, err)
		}
	}
	for _, text := range []string{"", "fe80::1%eth0", "10.0.0.1", "zz", strings.Repeat("f", 1<<20)} {
		root := fixture()
		root["class/infiniband/rxe0/ports/1/gids/0"] = file(text)
		if gid, err := (sysfs{root: root}).gid("rxe0", 1, 0); err == nil {
			t.Errorf("GID %.20q: got %v, want an error", text, gid)
		}
	}
}

// The running kernel's sysfs is read as a copy of it in a folder is.
func TestSysRoot(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, fixture()); err != nil {
		t.Fatal(err)
	}
	s := sysfs{root: sysRoot(dir)}
	for _, want := range []Device{mlx5(), rxe()} {
		got, err := s.device(want.Name, s.everything())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(sameAddr)); diff != "" {
			t.Errorf("device (-want +got):\n%s", diff)
		}
	}
	if _, err := s.device("mlx5_9", s.everything()); !gone(err) {
		t.Errorf("a device that doesn't exist: got error %v, want fs.ErrNotExist", err)
	}
	for path, want := range map[string]error{
		"../etc": fs.ErrInvalid, "class/none": fs.ErrNotExist, classPath: syscall.EISDIR,
	} {
		if b, err := sysRoot(dir).ReadFile(path); !errors.Is(err, want) {
			t.Errorf("%s: got %q, error %v, want %v", path, b, err, want)
		}
	}
}

// Whatever the attributes say, a device is read or refused, and bounded.
func FuzzSysfs(f *testing.F) {
	f.Add("4: ACTIVE", "InfiniBand", "fe80::1", "RoCE v2", "eth0", "0", "1", "0xffff", "rxe0")
	f.Fuzz(func(t *testing.T, state, layer, gid, kind, ndev, index, port, pkey, ibdev string) {
		dir := fmt.Sprintf("class/infiniband/rxe0/ports/%s/", port)
		root := fstest.MapFS{"class/infiniband/rxe0/node_guid": file("5054:00ff:fe12:3456")}
		for path, text := range map[string]string{
			dir + "state": state, dir + "link_layer": layer, dir + "gids/" + index: gid, dir + "pkeys/" + index: pkey,
			dir + "gid_attrs/ndevs/" + index: ndev, dir + "gid_attrs/types/" + index: kind,
			"class/infiniband_verbs/uverbs0/ibdev": ibdev,
		} {
			if !fs.ValidPath(path) {
				return // no file system could have it
			}
			root[path] = file(text)
		}
		s := sysfs{root: root}
		d, err := s.device("rxe0", s.everything())
		if err != nil {
			return
		}
		for _, p := range d.Ports {
			if p.Number < 1 || p.Number > 255 {
				t.Errorf("port %d", p.Number)
			}
			for _, g := range p.GIDs {
				if g.Index < 0 || g.Index > 65535 || !g.GID.Is6() || g.GID.Zone() != "" || g.GID.IsUnspecified() {
					t.Errorf("GID %+v", g)
				}
			}
			if table, err := s.pkeys("rxe0", p.Number); err != nil || len(table) > 65536 {
				t.Errorf("%d P_Keys, error %v", len(table), err)
			}
		}
	})
}
