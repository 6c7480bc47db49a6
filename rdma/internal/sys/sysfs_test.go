package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }

// fixture is an InfiniBand and RoCE card of two ports, and Soft-RoCE, as sysfs
// shows them.
func fixture() fstest.MapFS {
	const zero = "0000:0000:0000:0000:0000:0000:0000:0000"
	root := fstest.MapFS{
		"class/infiniband/mlx5_0/node_guid":                file("9803:9b03:005e:1de2"),
		"class/infiniband/mlx5_0/device/numa_node":         file("1"),
		"class/infiniband/mlx5_0/ports/1/state":            file("4: ACTIVE"),
		"class/infiniband/mlx5_0/ports/1/link_layer":       file("InfiniBand"),
		"class/infiniband/mlx5_0/ports/1/gids/0":           file("fe80:0000:0000:0000:9803:9b03:005e:1de2"),
		"class/infiniband/mlx5_0/ports/1/gids/1":           file(zero),
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
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0":  file("eth0"),
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/2":  file("eth0"),
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/10": file("eth0.7"),
	}
	return root
}

func TestSysfsDevice(t *testing.T) {
	gid := func(index int, gid, link string) GID {
		return GID{Index: index, GID: netip.MustParseAddr(gid), Interface: link}
	}
	for name, want := range map[string]Device{
		"mlx5_0": {Name: "mlx5_0", NodeGUID: "9803:9b03:005e:1de2", NUMANode: 1, Ports: []Port{
			{Number: 1, LinkLayer: "InfiniBand", State: "4: ACTIVE", GIDs: []GID{gid(0, "fe80::9803:9b03:5e:1de2", "")}},
			{Number: 2, LinkLayer: "Ethernet", State: "1: DOWN"},
		}},
		"rxe0": {Name: "rxe0", NodeGUID: "5054:00ff:fe12:3456", NUMANode: -1, Ports: []Port{
			{Number: 1, LinkLayer: "Ethernet", State: "4: ACTIVE", GIDs: []GID{
				gid(0, "fe80::5054:ff:fe12:3456", "eth0"),
				gid(2, "::ffff:10.0.0.2", "eth0"),
				gid(10, "::ffff:10.0.0.3", "eth0.7"),
			}},
		}},
	} {
		got, err := sysfs{root: fixture()}.device(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSysfsErrors(t *testing.T) {
	s := sysfs{root: fixture()}
	if _, err := s.device("mlx5_9"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that doesn't exist: got error %v, want fs.ErrNotExist", err)
	}
	for _, name := range []string{"", "..", "../net", "mlx5_0/ports"} {
		if _, err := s.device(name); err == nil {
			t.Errorf("device %q: got no error", name)
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

// Whatever the attributes say, a device is read or refused, and bounded.
func FuzzSysfs(f *testing.F) {
	f.Add("4: ACTIVE", "InfiniBand", "fe80::1", "eth0", "0", "1")
	f.Add("", "", "", "", "", "")
	f.Add("x", "Ethernet", "::ffff:10.0.0.1", "a/b", "65536", "256")
	f.Fuzz(func(t *testing.T, state, layer, gid, ndev, index, port string) {
		dir := fmt.Sprintf("class/infiniband/rxe0/ports/%s/", port)
		root := fstest.MapFS{"class/infiniband/rxe0/node_guid": file("5054:00ff:fe12:3456")}
		for path, text := range map[string]string{
			dir + "state": state, dir + "link_layer": layer,
			dir + "gids/" + index: gid, dir + "gid_attrs/ndevs/" + index: ndev,
		} {
			if !fs.ValidPath(path) {
				return // no file system could have it
			}
			root[path] = file(text)
		}
		d, err := sysfs{root: root}.device("rxe0")
		if err != nil {
			return
		}
		for _, p := range d.Ports {
			if p.Number < 0 || p.Number > 255 {
				t.Errorf("port %d", p.Number)
			}
			for _, g := range p.GIDs {
				if g.Index < 0 || g.Index > 65535 || !g.GID.Is6() || g.GID.Zone() != "" || g.GID.IsUnspecified() {
					t.Errorf("GID %+v", g)
				}
			}
		}
	})
}
