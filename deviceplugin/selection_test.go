package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// softRoCE is a device without a bus.
func softRoCE(name string) hostDevice {
	return hostDevice{
		Device: rdma.Device{Name: name, NodeGUID: "0011:2233:4455:6677", NUMANode: -1, UVerbs: "uverbs-" + name,
			Ports: []rdma.Port{{Number: 1, LinkLayer: rdma.LinkLayerEthernet, State: rdma.PortActive}}},
		interfaces: []string{"eth-" + name},
	}
}

// connectX is an InfiniBand one on PCI.
func connectX(name, address string) hostDevice {
	d := softRoCE(name)
	d.NUMANode = 1
	d.Ports[0].LinkLayer = rdma.LinkLayerInfiniBand
	d.pci = pciAttributes{address: address, vendor: "15b3", device: "1017", driver: "mlx5_core"}
	d.umads = []string{"umad-" + name}
	return d
}

func TestMatches(t *testing.T) {
	devices := []hostDevice{softRoCE("rxe0"), connectX("mlx5_0", "0000:3b:00.0"), connectX("mlx5_1", "0000:5e:00.0")}
	for _, tt := range []struct{ fields, want string }{
		{`"cdi": false`, "rxe0 mlx5_0 mlx5_1"},
		{`"devices": ["eth-rxe0"]`, "rxe0"},
		{`"devices": ["eth-*"], "selectors": {"drivers": ["mlx5_*"]}`, "mlx5_0 mlx5_1"},
		{`"selectors": {"vendors": ["15B3"]}`, "mlx5_0 mlx5_1"},
		{`"selectors": {"vendors": ["8086"]}`, ""},
		{`"selectors": {"deviceIDs": ["0x1017", "1018"]}`, "mlx5_0 mlx5_1"},
		{`"selectors": {"ifNames": ["eth-rxe0", "eth-mlx5_1"]}`, "rxe0 mlx5_1"},
		{`"selectors": {"linkTypes": ["ether"]}`, "rxe0"},
		{`"selectors": {"linkTypes": ["infiniband"]}`, "mlx5_0 mlx5_1"},
		{`"selectors": {"linkLayers": ["InfiniBand"], "rdmaDevices": ["*_1"]}`, "mlx5_1"},
		{`"selectors": {"pciAddresses": ["3b:00.0"]}`, "mlx5_0"},
		{`"selectors": {"pciAddresses": ["0000:3B:*", "0000:5e:00.0"]}`, "mlx5_0 mlx5_1"},
		{`"selectors": {"linkTypes": ["ether"], "vendors": ["15b3"]}`, ""},
	} {
		config, err := Parse([]byte(one(tt.fields)))
		if err != nil {
			t.Fatal(err)
		}
		assigned, conflicts := assign(config, devices)
		var got []string
		for _, d := range assigned[0] {
			got = append(got, d.Name)
		}
		if strings.Join(got, " ") != tt.want || len(conflicts) > 0 {
			t.Errorf("%s: %v, conflicts %v; want %s", tt.fields, got, conflicts, tt.want)
		}
	}
}

func TestADeviceOnSeveralResourcesIsRefused(t *testing.T) {
	config, err := Parse([]byte(`{"configList": [
		{"resourceName": "a", "selectors": {"linkTypes": ["ether"]}},
		{"resourceName": "b", "selectors": {"rdmaDevices": ["rxe0"]}},
		{"resourceName": "c", "selectors": {"rdmaDevices": ["mlx5_0"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	assigned, conflicts := assign(config, []hostDevice{softRoCE("rxe0"), softRoCE("rxe1"), connectX("mlx5_0", "")})
	if diff := cmp.Diff([]*ConflictError{{Device: "rxe0", Resources: []string{"rdma/a", "rdma/b"}}}, conflicts); diff != "" {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	for i, want := range []string{"rxe1", "", "mlx5_0"} {
		got := ""
		for _, d := range assigned[i] {
			got += d.Name
		}
		if got != want {
			t.Errorf("resource %d has %q, want %q", i, got, want)
		}
	}
	if text := conflicts[0].Error(); !strings.HasPrefix(text, "device rxe0: selected by resources rdma/a, rdma/b: narrow their selectors") {
		t.Error(text)
	}
}

func TestPCIAttributes(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	s := sysfs{fstest.MapFS{
		"class/infiniband/mlx5_0/device/uevent": file("DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_ID=15B3:1017\nPCI_SUBSYS_ID=15B3:0020\nPCI_SLOT_NAME=0000:3B:00.0\nMODALIAS=pci:v0\n"),
		"class/infiniband/old/device/uevent":    file("PCI_ID=2:F\n"),
		"class/infiniband/sf0/device/uevent":    file("DRIVER=mlx5_core.sf\nMODALIAS=auxiliary:mlx5_core.sf\n"),
		"class/infiniband/huge/device/uevent":   file(strings.Repeat("x", maxAttribute) + "\nDRIVER=late\n"),
		"class/infiniband/odd/device/uevent":    file("\x00=\nDRIVER\nPCI_ID=\n=\n"),
		"class/infiniband/rxe0/ports":           file(""),
		"class/infiniband_mad/abi_version":      file("5\n"),
		"class/infiniband_mad/umad0/ibdev":      file("mlx5_0\n"),
		"class/infiniband_mad/umad1/ibdev":      file("mlx5_0\n"),
		"class/infiniband_mad/umad2/ibdev":      file("old\n"),
		"class/infiniband_mad/umad3/port":       file("1\n"),
		"class/infiniband_mad/issm0/ibdev":      file("mlx5_0\n"),
	}}
	for device, want := range map[string]pciAttributes{
		"mlx5_0": {address: "0000:3b:00.0", vendor: "15b3", device: "1017", driver: "mlx5_core"},
		"old":    {vendor: "0002", device: "000f"},
		"sf0":    {driver: "mlx5_core.sf"},
		"huge":   {}, "odd": {}, "rxe0": {}, "gone": {}, "..": {},
	} {
		if got := s.pci(device); got != want {
			t.Errorf("%s: %+v, want %+v", device, got, want)
		}
	}
	want := map[string][]string{"mlx5_0": {"umad0", "umad1"}, "old": {"umad2"}}
	if diff := cmp.Diff(want, s.umads()); diff != "" {
		t.Errorf("umads (-want +got):\n%s", diff)
	}
	if got := (sysfs{fstest.MapFS{}}).umads(); len(got) != 0 {
		t.Errorf("without ib_umad: %v", got)
	}
}

func FuzzUevent(f *testing.F) {
	f.Add([]byte("DRIVER=mlx5_core\nPCI_ID=15B3:1017\nPCI_SLOT_NAME=0000:3B:00.0\n"))
	f.Add([]byte("PCI_ID=::\n\n=\nPCI_ID"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := sysfs{fstest.MapFS{
			"class/infiniband/a/device/uevent": {Data: text},
			"class/infiniband_mad/umad0/ibdev": {Data: text},
		}}
		got := s.pci("a")
		if len(got.address)+len(got.vendor)+len(got.device)+len(got.driver) > 4*maxAttribute {
			t.Errorf("attributes of %d bytes", len(got.driver))
		}
		for device := range s.umads() {
			if len(device) > maxAttribute {
				t.Errorf("a device's name of %d bytes", len(device))
			}
		}
	})
}

func TestMovedInterfacesAreRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "interfaces.json")
	m, err := openMoved(path)
	if err != nil {
		t.Fatal(err)
	}
	two := rdma.Device{Name: "mlx5_0", NodeGUID: "a", Ports: []rdma.Port{
		{Number: 1, Interfaces: []string{"ens1", "ens1.5"}}, {Number: 2, Interfaces: []string{"ens2"}},
	}}
	look := func(want string, devices ...rdma.Device) {
		t.Helper()
		if err := m.update(devices); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.interfaces(&two), " "); got != want {
			t.Errorf("interfaces %q, want %q", got, want)
		}
	}
	look("ens1 ens1.5 ens2", two)
	two.Ports = []rdma.Port{{Number: 1}, {Number: 2, Interfaces: []string{"ens2new"}}}
	look("ens1 ens1.5 ens2new", two) // one moved, one renamed
	if m, err = openMoved(path); err != nil {
		t.Fatal(err)
	}
	look("ens1 ens1.5 ens2new", two) // as before the restart
	other := two
	other.NodeGUID = "b"
	look("", other) // taken away, and another came under its name
	look("ens2new", two)

	if err := os.WriteFile(path, []byte(`[{"Device": 1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err = openMoved(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v", err)
	}
	look("ens2new", two)
	if m, err = openMoved(path); err != nil {
		t.Errorf("mended: %v", err)
	}
	look("ens2new", two)
}

// Whatever the file has, the next look writes one that is read.
func FuzzMoved(f *testing.F) {
	f.Add([]byte(`[{"Device":"mlx5_0","GUID":"a","Port":1,"Interfaces":["ens1"]}]`))
	f.Add([]byte(`[{}, {"Port": -1, "Interfaces": null}] x`))
	device := rdma.Device{Name: "mlx5_0", NodeGUID: "a", Ports: []rdma.Port{{Number: 1}, {Number: 2, Interfaces: []string{"ens2"}}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "interfaces.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		m, _ := openMoved(path)
		if err := m.update([]rdma.Device{device}); err != nil {
			t.Fatal(err)
		}
		again, err := openMoved(path)
		if err != nil {
			t.Fatalf("%v, after %q", err, text)
		}
		if diff := cmp.Diff(m.interfaces(&device), again.interfaces(&device)); diff != "" {
			t.Error(diff)
		}
	})
}
