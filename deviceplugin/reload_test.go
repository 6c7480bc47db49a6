package deviceplugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// A change is in force at once, for open streams too.
func TestConfigurationChanges(t *testing.T) {
	w := newWorld(t)
	w.configure(one(`"rdmaHcaMax": 10`))
	k, p := running(t, w, "rdma/a")
	if k.allocatable("rdma/a") != 20 || k.capacity(nic) != 0 {
		t.Errorf("allocatable %d, of the default %d", k.allocatable("rdma/a"), k.capacity(nic))
	}
	w.configure(one(`"rdmaHcaMax": 20`))
	wait(t, "more slots", func() bool { return k.allocatable("rdma/a") == 40 })
	w.configure(one(`"rdmaHcaMax": 20, "selectors": {"rdmaDevices": ["rxe1"]}`))
	wait(t, "one device", func() bool { return k.allocatable("rdma/a") == 20 })
	w.configure(`{"configList": [
		{"resourceName": "a", "selectors": {"rdmaDevices": ["rxe0"]}},
		{"resourceName": "b", "selectors": {"rdmaDevices": ["rxe1"]}}]}`)
	wait(t, "two resources", func() bool { return k.allocatable("rdma/a") == 1000 && k.allocatable("rdma/b") == 1000 })
	if n, _ := k.count("rdma/a"); n != 1 {
		t.Errorf("%d registrations, want one", n)
	}
	w.configure(`configList: [{resourceName: b}]`)
	wait(t, "one resource, of all devices", func() bool {
		return len(k.endpoints("rdma/a")) == 0 && k.allocatable("rdma/b") == 2000 && len(p.Resources()) == 2 && len(k.sockets()) == 3
	})
	if err := os.Remove(w.options.ConfigFile); err != nil {
		t.Fatal(err)
	}
	wait(t, "the default", func() bool { return k.allocatable(nic) == 2000 && len(k.endpoints("rdma/b")) == 0 })
	if n, _ := k.count(GateResource); n != 1 {
		t.Errorf("the gate was registered %d times, want once", n)
	}
}

// A file that can't be taken changes nothing, and is told of once.
func TestBadConfigurationChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.configure(one(`"rdmaHcaMax": 10`))
	k, _ := running(t, w, "rdma/a")
	if n, err := w.configError(); n != 1 || err != nil {
		t.Errorf("%d answers, the last %v", n, err)
	}
	for i, tt := range []struct{ text, want string }{
		{`{"configList": [`, "unexpected end"},
		{one(`"rdmaHcaMax": 10, "vendors": []`), `unknown field "configList[0].vendors"`},
		{strings.Repeat("x", maxConfig+1), "at most 262144"},
		{`{"configList": [{"resourceName": "a", "rdmaHcaMax": 5}, {"resourceName": "b", "selectors": {"ifNames": ["eth1"]}}]}`,
			"device rxe1: selected by resources rdma/a, rdma/b: narrow their selectors"},
	} {
		w.configure(tt.text)
		wait(t, "told: "+tt.want, func() bool { n, _ := w.configError(); return n == i+2 })
		_, err := w.configError()
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "configuration file "+w.options.ConfigFile) {
			t.Errorf("%.80q: %v, want %q", tt.text, err, tt.want)
		}
		if got := k.allocatable("rdma/a"); got != 20 {
			t.Errorf("after %.80q: %d slots, want 20 as before", tt.text, got)
		}
	}
	// The conflict ends with the device: the file is taken after all.
	w.node.RemoveDevice("rxe1")
	wait(t, "taken", func() bool { n, err := w.configError(); return n == 6 && err == nil })
	wait(t, "in force", func() bool { return k.allocatable("rdma/a") == 5 })
	// It comes back, and only it is refused.
	w.node.AddDevice("rxe1", "eth1")
	wait(t, "refused", func() bool { return w.hasProblem("device rxe1: selected by resources rdma/a, rdma/b") })
	if a, b := k.allocatable("rdma/a"), k.allocatable("rdma/b"); a != 5 || b != 0 {
		t.Errorf("%d and %d slots, want 5 and 0", a, b)
	}
}

// With a bad file from the start there is the gate, and what was meant once it
// is mended.
func TestBadConfigurationAtTheStart(t *testing.T) {
	w := newWorld(t)
	w.configure(`{"configlist": []}`)
	k, p := running(t, w)
	if n, err := w.configError(); n != 1 || err == nil || !strings.Contains(err.Error(), `unknown field "configlist"`) {
		t.Errorf("%d answers, the last %v", n, err)
	}
	if r := p.Resources(); len(r) != 1 || r[0].Name != GateResource {
		t.Errorf("resources %+v, want the gate alone", r)
	}
	w.configure(one(`"rdmaHcaMax": 1`))
	wait(t, "mended", func() bool { return k.allocatable("rdma/a") == 2 })
}

// A file that can't be read is a bad one.
func TestUnreadableConfiguration(t *testing.T) {
	w := newWorld(t)
	w.configure(one(`"rdmaHcaMax": 10`))
	k, _ := running(t, w, "rdma/a")
	if err := os.Remove(w.options.ConfigFile); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(w.options.ConfigFile), w.options.ConfigFile); err != nil { // ELOOP
		t.Fatal(err)
	}
	wait(t, "told", func() bool { _, err := w.configError(); return err != nil })
	before, _ := w.configError()
	if got := k.allocatable("rdma/a"); got != 20 {
		t.Errorf("%d slots, want 20 as before", got)
	}
	w.configure(one(`"rdmaHcaMax": 10`)) // what it was before
	wait(t, "taken", func() bool { n, err := w.configError(); return n > before && err == nil })
	if got := k.allocatable("rdma/a"); got != 20 {
		t.Errorf("%d slots, want 20", got)
	}
}

// kubelet changes a ConfigMap's files by a link of their folder, ..data.
func TestConfigMap(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	write := func(version, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	write("..1", one(`"rdmaHcaMax": 1`))
	w.options.ConfigFile = filepath.Join(dir, "config.json")
	if err := os.Symlink("..data/config.json", w.options.ConfigFile); err != nil {
		t.Fatal(err)
	}
	k, _ := running(t, w, "rdma/a")
	write("..2", one(`"rdmaHcaMax": 2`))
	wait(t, "the second version", func() bool { return k.allocatable("rdma/a") == 4 })
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	write("..3", one(`"rdmaHcaMax": 3`))
	wait(t, "the third version", func() bool { return k.allocatable("rdma/a") == 6 })
}

// After plugins have come, been restarted and gone there are as many
// descriptors as before, and no socket, file aside or watch.
func TestNothingIsLeft(t *testing.T) {
	w := newWorld(t)
	w.configure(one(`"cdi": true`))
	k := startKubelet(t, w.root, false)
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	quickest := time.Hour
	cycle := func() {
		_, stop := w.start()
		wait(t, "in full", func() bool { return k.allocatable("rdma/a") == 2000 && k.allocatable(GateResource) == 1000 })
		if _, err := k.api("rdma/a").Allocate(t.Context(), allocate("rxe0-0")); err != nil {
			t.Error(err)
		}
		begun := time.Now()
		stop()
		quickest = min(quickest, time.Since(begun))
		wait(t, "kubelet noticed", func() bool { return len(k.endpoints("rdma/a")) == 0 && len(k.endpoints(GateResource)) == 0 })
	}
	cycle() // the runtime's poller, gRPC's own
	before := descriptors()
	for range 5 {
		cycle()
	}
	wait(t, "descriptors as before", func() bool { return descriptors() <= before })
	if quickest >= stopGrace {
		t.Errorf("each end took %v or more: it waits for kubelet's streams", quickest)
	}
	if got := k.sockets(); len(got) != 1 {
		t.Errorf("sockets %v, want kubelet's alone", got)
	}
	if n := w.node.OpenWatches(); n != 0 {
		t.Errorf("%d watches are open", n)
	}
	for _, dir := range []string{w.options.StateDir, w.options.CDIDir} {
		entries, err := os.ReadDir(dir)
		if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }) {
			t.Errorf("%s: %v, %v", dir, entries, err)
		}
	}
}

// A start that waits when the plugin ends is told so, and holds the end up for
// a moment only.
func TestStopWhileAStartWaits(t *testing.T) {
	w := newWorld(t)
	w.options.PreStartTimeout = 30 * time.Second
	k := startKubelet(t, w.root, false)
	_, stop := w.start()
	wait(t, "in full", func() bool { return k.allocatable(nic) == 2000 })
	entered := make(chan struct{})
	w.setGate(waitForever(entered))
	answer := make(chan error, 1)
	// kubelet would give up by itself, its connection being lost with the list.
	conn := dial(t, filepath.Join(k.dir, k.endpoints(nic)[0]))
	defer conn.Close()
	api := pluginapi.NewDevicePluginClient(conn)
	go func() { answer <- preStart(t, api, "rxe0-0") }()
	<-entered
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > w.options.PreStartTimeout/2 {
		t.Errorf("the end took %v", took)
	}
	if err := <-answer; err == nil {
		t.Error("the container was let start")
	}
	if got := k.sockets(); len(got) != 1 {
		t.Errorf("sockets %v, want kubelet's alone", got)
	}
}
