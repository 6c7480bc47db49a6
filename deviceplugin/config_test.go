package deviceplugin

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func ptr(n int) *int { return &n }

func readTestdata(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/config/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParse(t *testing.T) {
	shared := &Config{
		PeriodicUpdateInterval: ptr(300),
		ConfigList: []Resource{
			{ResourceName: "hca_shared_devices_a", RDMAHCAMax: ptr(1000), Devices: []string{"ib0", "ib1"}},
			{ResourceName: "hca_shared_devices_b", ResourcePrefix: "example.com", RDMAHCAMax: ptr(500), Selectors: Selectors{
				Vendors: []string{"15b3"}, DeviceIDs: []string{"1017"}, Drivers: []string{"mlx5_core"},
				IfNames: []string{"ib3", "ib4"}, LinkTypes: []string{"infiniband"},
			}},
		},
	}
	for name, want := range map[string]*Config{
		"shared-dev-plugin.json": shared,
		"extended.yaml": {ConfigList: []Resource{{
			ResourceName: "fast", ResourcePrefix: "rdma-multicast.dev",
			Selectors: Selectors{
				PCIAddresses: []string{"0000:3b:00.0", "0000:5e:*"},
				RDMADevices:  []string{"mlx5_*", "rxe0"},
				LinkLayers:   []string{"Ethernet"},
			},
			ExposeRDMACM: true, ExposeUMAD: true, CDI: true,
		}}},
	} {
		got, err := Parse(readTestdata(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNamesAndDefaults(t *testing.T) {
	got, err := Parse([]byte(`{"configList": [{"resourceName": "hca"}, {"resourceName": "b", "resourcePrefix": "example.com", "rdmaHcaMax": 0}]}`))
	if err != nil {
		t.Fatal(err)
	}
	type resource struct {
		name  string
		slots int
	}
	for i, want := range []resource{{"rdma/hca", 1000}, {"example.com/b", 0}} {
		if r := &got.ConfigList[i]; r.Name() != want.name || r.slots() != want.slots {
			t.Errorf("resource %d: %s with %d slots, want %v", i, r.Name(), r.slots(), want)
		}
	}
	if got.interval() != time.Minute {
		t.Errorf("interval %v, want a minute", got.interval())
	}
	r := &Default().ConfigList[0]
	if r.Name() != "rdma-multicast.dev/nic" || r.slots() != 1000 {
		t.Errorf("without a file: %s with %d slots", r.Name(), r.slots())
	}
}

func TestParseEmptyListIsTheGateAlone(t *testing.T) {
	for _, text := range []string{`{"configList": []}`, "configList: []\n", "# all\n---\nconfigList: []\n"} {
		if c, err := Parse([]byte(text)); err != nil || len(c.ConfigList) != 0 {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

// one is a file of one resource with some fields.
func one(fields string) string { return `{"configList": [{"resourceName": "a", ` + fields + `}]}` }

// Each error says where it is and what to do.
func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", 254)
	many := strings.Repeat(`"x",`, 256) + `"x"`
	for _, tt := range []struct {
		name, text string
		want       []string // in the error
	}{
		{"nothing", "", []string{"configList: missing", "or remove the file"}},
		{"null", "null", []string{"configList: missing"}},
		{"null list", `{"configList": null}`, []string{"configList: missing"}},
		{"not a config", "[]", []string{"configuration: ", "array"}},
		{"half", `{"configList": [`, []string{"configuration: unexpected end"}},
		{"something behind", `{"configList": []} x`, []string{"configuration: invalid character 'x'"}},
		{"YAML tabs", "configList:\n\t- x", []string{"neither JSON nor YAML"}},
		{"two documents", "configList: []\n---\nconfigList: []\n", []string{"line 2: a second YAML document", "one configList"}},
		{"document after an end", "configList: []\n...\nx: 1\n", []string{"line 2: a second YAML document"}},
		{"too large", `{"configList": [` + strings.Repeat(" ", maxConfig), []string{"bytes: at most 262144"}},
		{"unknown at the top", `{"configlist": [], "configList": []}`, []string{`unknown field "configlist"`, "periodicUpdateInterval, configList"}},
		{"unknown in a resource", one(`"rdmaHcamax": 3`), []string{`unknown field "configList[0].rdmaHcamax"`, "rdmaHcaMax"}},
		{"unknown in selectors", one(`"selectors": {"vendor": []}`), []string{`unknown field "configList[0].selectors.vendor"`, "vendors"}},
		{"given twice", one(`"cdi": true, "cdi": false`), []string{`duplicate field "configList[0].cdi"`, "keep one"}},
		{"given twice in YAML", "configList: []\nconfigList: []\n", []string{"already set"}},
		{"a number for text", "configList:\n- resourceName: a\n  selectors:\n    deviceIDs: [1017]\n", []string{"deviceIDs", "quotes"}},
		{"text for a number", one(`"rdmaHcaMax": "3"`), []string{"rdmaHcaMax", "correct the value"}},
		{"slots below", one(`"rdmaHcaMax": -1`), []string{"configList[0].rdmaHcaMax: -1: give 0 to 10000"}},
		{"slots above", one(`"rdmaHcaMax": 10001`), []string{"configList[0].rdmaHcaMax: 10001: give 0 to 10000"}},
		{"interval", `{"periodicUpdateInterval": -1, "configList": []}`, []string{"periodicUpdateInterval: -1: give 0 to 86400"}},
		{"no name", `{"configList": [{}]}`, []string{`configList[0].resourceName: "": give 1 to 63`}},
		{"full name", `{"configList": [{"resourceName": "rdma/a"}]}`, []string{`configList[0].resourceName: "rdma/a": leave out the prefix`}},
		{"name of dots", `{"configList": [{"resourceName": ".."}]}`, []string{`configList[0].resourceName: ".."`}},
		{"Kubernetes' prefix", one(`"resourcePrefix": "x.kubernetes.io"`), []string{`configList[0].resourcePrefix: "x.kubernetes.io"`, "isn't Kubernetes' own"}},
		{"bad prefix", one(`"resourcePrefix": "A/b"`), []string{`configList[0].resourcePrefix: "A/b"`}},
		{"the gate", `{"configList": [{"resourceName": "gate"}]}`, []string{`configList[0].resourceName: "gate" is rdma-multicast.dev/gate's`}},
		{"one name twice", `{"configList": [{"resourceName": "a"}, {"resourceName": "a", "resourcePrefix": "b.c"}]}`, []string{`configList[1].resourceName: "a" is that of configList[0]`, "same path"}},
		{"both kinds of interfaces", one(`"devices": ["a"], "selectors": {"ifNames": ["b"]}`), []string{"configList[0].devices: given beside selectors.ifNames"}},
		{"vendor", one(`"selectors": {"vendors": ["15b3", "mellanox"]}`), []string{`configList[0].selectors.vendors[1]: "mellanox"`, "four hexadecimal digits"}},
		{"pattern", one(`"selectors": {"rdmaDevices": ["mlx5_["]}`), []string{`configList[0].selectors.rdmaDevices[0]: "mlx5_[" isn't a pattern`}},
		{"link type", one(`"selectors": {"linkTypes": ["roce"]}`), []string{`configList[0].selectors.linkTypes[0]: "roce": give one of ether, infiniband`}},
		{"link layer", one(`"selectors": {"linkLayers": ["IB"]}`), []string{`configList[0].selectors.linkLayers[0]: "IB": give one of Ethernet, InfiniBand`}},
		{"empty text", one(`"devices": [""]`), []string{"configList[0].devices[0]: 0 bytes: give 1 to 253"}},
		{"long text", one(`"devices": ["` + long + `"]`), []string{"configList[0].devices[0]: 254 bytes"}},
		{"long list", one(`"devices": [` + many + `]`), []string{"configList[0].devices: 257 entries: give at most 256"}},
		{"CDI name", `{"configList": [{"resourceName": "1a", "cdi": true}]}`, []string{"configList[0].cdi: CDI has no names such as \"rdma/1a\""}},
	} {
		_, err := Parse([]byte(tt.text))
		if err == nil {
			t.Errorf("%s: taken", tt.name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q lacks %q", tt.name, err, want)
			}
		}
	}
}

func TestParseBoundsWhatItTells(t *testing.T) {
	var resources []string
	for range maxResources {
		resources = append(resources, `{"resourceName": "gate", "rdmaHcaMax": -1}`)
	}
	_, err := Parse([]byte(`{"configList": [` + strings.Join(resources, ",") + `]}`))
	if err == nil || strings.Count(err.Error(), "\n") != maxErrors || !strings.HasSuffix(err.Error(), "and 181 more") {
		t.Errorf("error of %d resources: %v", maxResources, err)
	}
	resources = append(resources, resources[0])
	_, err = Parse([]byte(`{"configList": [` + strings.Join(resources, ",") + `]}`))
	if want := fmt.Sprintf("configList: %d resources: give at most %d", maxResources+1, maxResources); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// What is taken makes resources without a fault, and is taken again.
func FuzzParse(f *testing.F) {
	f.Add(readTestdata(f, "shared-dev-plugin.json"))
	f.Add(readTestdata(f, "extended.yaml"))
	f.Add([]byte("configList: &a [{resourceName: x, selectors: {ifNames: ['[a-z]*']}}]\n"))
	f.Add([]byte("a: &a [b]\nc: &c [*a, *a]\n<<: {configList: [*c]}\n"))
	devices := []hostDevice{softRoCE("rxe0"), connectX("mlx5_0", "0000:3b:00.0")}
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := Parse(text)
		if err != nil {
			if len(err.Error()) > 64<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		assigned, _ := assign(config, devices)
		for i := range config.ConfigList {
			r := &config.ConfigList[i]
			devices, _ := resourceDevices(r, assigned[i], func(string) bool { return true })
			s := newSnapshot(devices, nil, r.CDI)
			if len(s.list) > maxResourceSlots || len(s.byID) != len(s.list) {
				t.Errorf("%d slots, %d IDs", len(s.list), len(s.byID))
			}
		}
		if errs := config.validate(); len(errs) > 0 {
			t.Errorf("taken, and then not: %v", errs)
		}
	})
}
