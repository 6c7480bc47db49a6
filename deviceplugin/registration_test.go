package deviceplugin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

func registered(p *Plugin) bool {
	resources := p.Resources()
	return len(resources) > 0 && !slices.ContainsFunc(resources, func(r ResourceStatus) bool { return !r.Registered })
}

func TestRegisters(t *testing.T) {
	w := newWorld(t)
	k := startKubelet(t, w.root, false)
	p, _ := w.start()
	wait(t, "both resources in full", func() bool { return k.allocatable(nic) == 2000 && k.allocatable(GateResource) == 1000 })
	wait(t, "registered", func() bool { return registered(p) })
	if n, lists := k.count(nic); n != 1 || lists != 1 {
		t.Errorf("%d registrations, %d lists, want one", n, lists)
	}
	for _, r := range p.Resources() {
		if want := map[string]int{nic: 2000, GateResource: 1000}[r.Name]; r.Slots != want || r.Healthy != want || r.Err != nil {
			t.Errorf("%+v, want %d slots", r, want)
		}
	}
	info, err := os.Stat(filepath.Join(k.dir, k.endpoints(nic)[0]))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
}

func TestWaitsForKubelet(t *testing.T) {
	w := newWorld(t)
	if err := os.Remove(filepath.Join(w.root, "device-plugins")); err != nil {
		t.Fatal(err)
	}
	p, _ := w.start()
	wait(t, "told that there is no kubelet", func() bool {
		r := p.Resources()
		return len(r) == 2 && errors.Is(r[0].Err, errNoKubelet) && errors.Is(r[1].Err, errNoKubelet)
	})
	if err := os.Mkdir(filepath.Join(w.root, "device-plugins"), 0o750); err != nil {
		t.Fatal(err)
	}
	k := startKubelet(t, w.root, false)
	wait(t, "registered", func() bool { return registered(p) && k.allocatable(nic) == 2000 })
}

func TestRegistersAgainWhenKubeletRestarts(t *testing.T) {
	w := newWorld(t)
	k := startKubelet(t, w.root, false)
	p, _ := w.start()
	var before []string
	for range 3 {
		wait(t, "in full", func() bool { return k.allocatable(nic) == 2000 && k.allocatable(GateResource) == 1000 })
		now := append(k.endpoints(nic), k.endpoints(GateResource)...)
		for _, endpoint := range now {
			if slices.Contains(before, endpoint) {
				t.Errorf("socket %s serves again", endpoint)
			}
		}
		before = append(before, now...)
		k.stop()
		wait(t, "told that kubelet is down", func() bool { return !registered(p) })
		k = startKubelet(t, w.root, false)
	}
	wait(t, "in full", func() bool { return k.allocatable(nic) == 2000 })
	wait(t, "two sockets and kubelet's own", func() bool { return len(k.sockets()) == 3 })
}

// A kubelet that is killed leaves its socket, and makes another one at once.
func TestRegistersAgainWhenTheSocketIsAnother(t *testing.T) {
	w := newWorld(t)
	first := startKubelet(t, w.root, false)
	w.start()
	wait(t, "in full", func() bool { return first.allocatable(nic) == 2000 })
	// The first's connections stay open, and the plugin's sockets where they are.
	if err := os.Remove(filepath.Join(first.dir, kubeletSocket)); err != nil {
		t.Fatal(err)
	}
	second := serveKubelet(t, w.root, false)
	wait(t, "in full again", func() bool { return second.allocatable(nic) == 2000 && second.allocatable(GateResource) == 1000 })
	wait(t, "the first forgotten", func() bool { return len(first.endpoints(nic)) == 0 })
}

func TestTriesAgainWhenKubeletRefuses(t *testing.T) {
	w := newWorld(t)
	k := startKubelet(t, w.root, false)
	k.setRefuse(errors.New("not now"))
	p, _ := w.start()
	wait(t, "told why", func() bool {
		return slices.ContainsFunc(p.Resources(), func(r ResourceStatus) bool {
			return r.Err != nil && strings.Contains(r.Err.Error(), "not now")
		})
	})
	k.setRefuse(nil)
	wait(t, "registered", func() bool { return registered(p) && k.allocatable(nic) == 2000 })
	wait(t, "no socket of the attempts", func() bool { return len(k.sockets()) == 3 })
}

// A kubelet that takes a registration and comes to nothing is told again.
func TestRegistersAgainWhenNobodyWatches(t *testing.T) {
	w := newWorld(t)
	w.tune = func(p *Plugin) { p.streamTimeout = 20 * time.Millisecond }
	k := startKubelet(t, w.root, false)
	k.setSilent(true)
	w.start()
	wait(t, "told twice", func() bool { n, _ := k.count(nic); return n >= 2 })
	k.setSilent(false)
	wait(t, "in full", func() bool { return k.allocatable(nic) == 2000 })
}

func TestSocketRemoved(t *testing.T) {
	w := newWorld(t)
	k := startKubelet(t, w.root, false)
	w.start()
	wait(t, "in full", func() bool { return k.allocatable(nic) == 2000 })
	old := k.endpoints(nic)[0]
	if err := os.Remove(filepath.Join(k.dir, old)); err != nil {
		t.Fatal(err)
	}
	wait(t, "another socket, in full", func() bool {
		endpoints := k.endpoints(nic)
		return len(endpoints) == 1 && endpoints[0] != old && k.allocatable(nic) == 2000
	})
}

// An upgrade: the new instance serves beside the old one, then the old one goes.
func TestTwoInstances(t *testing.T) {
	for name, byName := range map[string]bool{"kubelet 1.37": false, "kubelet 1.32": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			k := startKubelet(t, w.root, byName)
			_, stopOld := w.start()
			wait(t, "the old one in full", func() bool { return k.allocatable(nic) == 2000 && k.allocatable(GateResource) == 1000 })
			p, _ := w.start()
			wait(t, "both", func() bool {
				n, lists := k.count(nic)
				gates, _ := k.count(GateResource)
				return n == 2 && lists == 2 && gates == 2 && registered(p)
			})
			if n, _ := k.count(nic); n != 2 {
				t.Errorf("%d registrations of two instances: they push each other out", n)
			}
			stopOld()
			wait(t, "the new one alone, in full", func() bool {
				return registered(p) && len(k.endpoints(nic)) == 1 && len(k.endpoints(GateResource)) == 1 &&
					k.allocatable(nic) == 2000 && k.allocatable(GateResource) == 1000 && len(k.sockets()) == 3
			})
			least, most := 2, 2
			if byName {
				// Its endpoint went with the old one's; what that leaves behind may take
				// the next one along once more.
				least, most = 3, 5
			}
			if n, _ := k.count(nic); n < least || n > most {
				t.Errorf("%d registrations, want %d to %d", n, least, most)
			}
		})
	}
}

// Sockets of an agent that was killed go; one that somebody serves, and files
// that are none of ours, stay.
func TestStaleSockets(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.root, "device-plugins")
	listen := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		return l
	}
	for _, name := range []string{"rdma-multicast-nic-00000001.sock", "other.sock"} {
		if err := listen(name).Close(); err != nil {
			t.Fatal(err)
		}
	}
	served := listen("rdma-multicast-nic-00000002.sock")
	defer served.Close()
	if err := os.WriteFile(filepath.Join(dir, "rdma-multicast-x.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, stop := w.start()
	stale := filepath.Join(dir, "rdma-multicast-nic-00000001.sock")
	wait(t, "the stale one is gone", func() bool { _, ok := identify(stale); return !ok })
	stop()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{"other.sock", "rdma-multicast-nic-00000002.sock", "rdma-multicast-x.sock"}
	if !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
}

func TestSocketPathTooLong(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.root, strings.Repeat("x", 80))
	s := newServer(nic, &w.options, &directories{}, gateSnapshot())
	if _, err := s.listen(dir); err == nil || !strings.Contains(err.Error(), "use a shorter root for kubelet") {
		t.Errorf("a long path: %v", err)
	}
	if _, err := s.listen(filepath.Join(w.root, "absent")); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("no folder: %v", err)
	}
}

// The kernel's notification comes before the next look would.
func TestWatchDir(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	changed, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		watchDir(ctx, dir, logr.Discard(), func() {
			select {
			case changed <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	quickest := time.Hour
	for i := range 3 {
		<-changed // the watch, a look or a notification: the next look is a second away
		begun := time.Now()
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		<-changed
		quickest = min(quickest, time.Since(begun))
	}
	if quickest > lookInterval/2 {
		t.Errorf("told of a new file after %v", quickest)
	}
	cancel()
	<-over
}
