package sys

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// counting is a sysfs that counts the GIDs that are read from it.
type counting struct {
	fstest.MapFS
	gids *int
}

func (c counting) ReadFile(name string) ([]byte, error) {
	if strings.Contains(name, "/gids/") {
		*c.gids++
	}
	return c.MapFS.ReadFile(name)
}

// large is the fixture with a full-sized table of Soft-RoCE's, of which one
// entry far from the others is in use.
func large() fstest.MapFS {
	root := fixture()
	for i := 11; i < 1024; i++ {
		root[fmt.Sprintf("class/infiniband/rxe0/ports/1/gids/%d", i)] = file("::")
	}
	root["class/infiniband/rxe0/ports/1/gids/40"] = file("fd00::40")
	return root
}

func TestInventoryDiffers(t *testing.T) {
	const rxe0, ib = "class/infiniband/rxe0/ports/1/", "class/infiniband/mlx5_0/ports/1/"
	for _, tt := range []struct {
		name   string
		change func(fstest.MapFS)
		differ bool
	}{
		{"nothing", func(fstest.MapFS) {}, false},
		{"port state", func(m fstest.MapFS) { m[rxe0+"state"] = file("1: DOWN") }, true},
		{"a GID in the first free slot", func(m fstest.MapFS) { m[rxe0+"gids/1"] = file("fd00::1") }, true},
		{"a GID after the last one", func(m fstest.MapFS) { m[rxe0+"gids/41"] = file("fd00::41") }, true},
		{"the last GID goes", func(m fstest.MapFS) { m[rxe0+"gids/40"] = file("::") }, true},
		{"a GID's interface", func(m fstest.MapFS) { m[rxe0+"gid_attrs/ndevs/2"] = file("eth1") }, true},
		{"an InfiniBand GID anywhere", func(m fstest.MapFS) { m[ib+"gids/127"] = file("fe80::7") }, true},
		{"a P_Key", func(m fstest.MapFS) { m[ib+"pkeys/1"] = file("0x8002") }, true},
		{"verbs in user space", func(m fstest.MapFS) { m["class/infiniband_verbs/uverbs0/ibdev"] = file("rxe0") }, true},
		{"a device goes", func(m fstest.MapFS) {
			for name := range m {
				if strings.HasPrefix(name, "class/infiniband/rxe0/") {
					delete(m, name)
				}
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, gids := large(), 0
			k := kernel{
				sysfs: sysfs{root: counting{root, &gids}},
				names: func(NetNS) (map[uint32]string, error) { return map[uint32]string{0: "mlx5_0", 1: "rxe0"}, nil },
			}
			first := k.inventory(inventory{})
			if first.err != "" || len(first.devices) != 2 || len(first.devices[1].Ports[0].GIDs) != 4 || len(first.pkeys) != 1 {
				t.Fatalf("got %+v", first)
			}
			if gids < 1000 {
				t.Errorf("the first look read %d GIDs, want all", gids)
			}
			tt.change(root)
			gids = 0
			if now := k.inventory(first); now.same(first) == tt.differ {
				t.Errorf("differs %v, want %v: %+v", !tt.differ, tt.differ, now)
			}
			if gids > 100 {
				t.Errorf("a later look read %d GIDs, want those in use and a few", gids)
			}
		})
	}
}

func TestInventoryWithoutDevices(t *testing.T) {
	k := kernel{
		sysfs: sysfs{root: fixture()},
		names: func(NetNS) (map[uint32]string, error) { return nil, syscall.EPERM },
	}
	if i := k.inventory(inventory{}); i.err == "" || len(i.devices) != 0 {
		t.Errorf("got %+v, want the error", i)
	}
}
