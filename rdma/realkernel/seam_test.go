//go:build realkernel

package realkernel

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// seamOnly has what package rdma takes from the kernel by other ways than
// rdma_cm: sysfs, /proc, rtnetlink, uevents.
func seamOnly() []conformance.Scenario {
	return []conformance.Scenario{
		{Name: "sysfs tells GID types, interfaces, P_Keys and verbs devices", Run: sysfsTells},
		{Name: "IGMP users are read in the namespace that is asked about, from any thread", Run: igmpByNamespace},
		{Name: "a large IGMP table is read whole while it changes", Run: igmpWhileItChanges},
		{Name: "a watch of links tells of its namespace, and of nothing once it is closed", Run: watchesLinks},
		{Name: "a watch of links keeps its namespace until it is closed, and no longer", Run: watchKeepsNamespace},
		{Name: "a watch of devices tells of devices that come and go, at once", Run: watchesDevices},
		{Name: "a watch of devices finds by looking what the kernel tells nobody", Run: rescans},
	}
}

func sysfsTells(t *testing.T, m conformance.Machine) {
	addr := netip.MustParsePrefix("10.0.0.83/24")
	path := m.AddNetNS(t)
	m.AddMACVLAN(t, path, "net1", "rdma0", addr)
	devices, err := m.Kernel().Devices(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 2 {
		t.Fatalf("got devices %+v, want two", devices)
	}
	want := map[string]map[netip.Addr]string{
		"rxe0": {netip.MustParseAddr("::ffff:10.0.0.2"): "rdma0", netip.MustParseAddr("fd00::2"): "rdma0", netip.AddrFrom16(addr.Addr().As16()): "net1"},
		"rxe1": {netip.MustParseAddr("::ffff:10.0.0.3"): "rdma1", netip.MustParseAddr("fd00::3"): "rdma1"},
	}
	for _, d := range devices {
		if _, err := os.Stat("/dev/infiniband/" + d.UVerbs); err != nil || !strings.HasPrefix(d.UVerbs, "uverbs") {
			t.Errorf("%s: verbs device %q: %v", d.Name, d.UVerbs, err)
		}
		for _, g := range d.Ports[0].GIDs {
			if g.Type != string(rdma.RoCEv2) {
				t.Errorf("%s: GID %+v isn't of type %q", d.Name, g, rdma.RoCEv2)
			}
			if link, ok := want[d.Name][g.GID]; ok && link != g.Interface {
				t.Errorf("%s: GID %+v isn't of interface %s", d.Name, g, link)
			}
			delete(want[d.Name], g.GID)
			if one, err := m.Kernel().GID(d.Name, 1, g.Index); err != nil || one != g {
				t.Errorf("%s: GID %d by itself: got %+v, error %v, want %+v", d.Name, g.Index, one, err, g)
			}
		}
		if len(want[d.Name]) != 0 {
			t.Errorf("%s: lacks the GIDs %v", d.Name, want[d.Name])
		}
		pkeys, err := m.Kernel().PKeys(d.Name, 1)
		if err != nil || len(pkeys) == 0 || pkeys[0] != 0xffff {
			t.Errorf("%s: got P_Keys %#x, error %v, want the default partition's first", d.Name, pkeys, err)
		}
	}
}

func openNetNS(t *testing.T, k sys.Kernel, path string) sys.NetNS {
	t.Helper()
	ns, err := k.OpenNetNS(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

func igmpByNamespace(t *testing.T, m conformance.Machine) {
	pods := []netip.Prefix{netip.MustParsePrefix("10.0.0.84/24"), netip.MustParsePrefix("10.0.0.85/24")}
	spaces, paths, links := []sys.NetNS{nil}, []string{""}, []string{"rdma0"}
	ch := conformance.OpenChannel(t, m)
	shared := netip.MustParseAddr("239.4.1.255")
	join := func(ns *rdma.NetNS, addr netip.Addr, groups ...netip.Addr) {
		id, err := ch.NewID(ns, rdma.PortSpaceUDP)
		if err != nil {
			t.Fatal(err)
		}
		if err := id.Bind(addr); err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			conformance.Join(t, ch, id, g, rdma.JoinOptions{})
		}
	}
	join(nil, netip.MustParseAddr("10.0.0.2"), shared)
	join(nil, netip.MustParseAddr("10.0.0.2"), shared)
	for i, pod := range pods {
		path := m.AddNetNS(t)
		m.AddMACVLAN(t, path, "net1", "rdma0", pod)
		ns, err := m.Host().OpenNetNS(path)
		if err != nil {
			t.Fatal(err)
		}
		join(ns, pod.Addr(), shared, netip.AddrFrom4([4]byte{239, 4, 1, byte(i)}))
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
		spaces, paths, links = append(spaces, openNetNS(t, m.Kernel(), path)), append(paths, path), append(links, "net1")
	}
	for i, want := range []int{2, 1, 1} {
		if got := m.IGMP(t, paths[i], links[i])[shared]; got != want {
			t.Fatalf("namespace %q has %d users of %v, want %d", paths[i], got, shared, want)
		}
	}
	var all sync.WaitGroup
	for i, space := range spaces {
		want := m.IGMP(t, paths[i], links[i])
		for range 4 {
			all.Go(func() {
				for range 5 {
					got, err := m.Kernel().IGMP(space, links[i])
					if err != nil || !maps.Equal(got, want) {
						t.Errorf("namespace %q: got %v, error %v, want %v", paths[i], got, err, want)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

// igmpWhileItChanges has a group at a table's head come and go, and those of
// several pages looked for.
func igmpWhileItChanges(t *testing.T, m conformance.Machine) {
	ch := conformance.OpenChannel(t, m)
	staying, going := conformance.Bind(t, ch, netip.MustParseAddr("10.0.0.2")), conformance.Bind(t, ch, netip.MustParseAddr("10.0.0.2"))
	const groups = 100 // a page has about 90
	var want []netip.Addr
	for i := range groups {
		g := netip.AddrFrom4([4]byte{239, 4, 2, byte(i)})
		conformance.Join(t, ch, staying, g, rdma.JoinOptions{})
		want = append(want, g)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		g := netip.MustParseAddr("239.4.3.1") // before the others in the table
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := going.Join(g, rdma.JoinOptions{}); err != nil {
				t.Error(err)
				return
			}
			if err := going.Leave(g); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 200 {
		got, err := m.Kernel().IGMP(nil, "rdma0")
		if err != nil {
			t.Error(err)
			break
		}
		missing := 0
		for _, g := range want {
			if got[g] != 1 {
				missing++
			}
		}
		if missing > 0 {
			t.Errorf("%d of %d groups were missing", missing, groups)
		}
	}
	close(stop)
	<-stopped
}

// wantChange waits for a change to be told.
func wantChange(t *testing.T, w sys.Watch, what string) {
	t.Helper()
	select {
	case _, more := <-w.Changed():
		if !more {
			t.Fatalf("%s: the watch ended: %v", what, w.Err())
		}
	case <-time.After(conformance.Patience):
		t.Fatalf("%s: nothing was told within %v", what, conformance.Patience)
	}
}

// forget takes what was told, for the changes that are known.
func forget(w sys.Watch) {
	select {
	case <-w.Changed():
	default:
	}
}

func closeWatch(t *testing.T, w sys.Watch) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Errorf("close the watch: %v", err)
	}
	forget(w)
	if _, more := <-w.Changed(); more {
		t.Error("a closed watch tells changes, want its channel closed")
	}
	if err := w.Err(); err != nil {
		t.Errorf("a closed watch has error %v, want none", err)
	}
}

func watchesLinks(t *testing.T, m conformance.Machine) {
	path, other := m.AddNetNS(t), m.AddNetNS(t)
	open := func(path string) sys.Watch {
		w, err := m.Kernel().WatchLinks(openNetNS(t, m.Kernel(), path))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w, quiet := open(path), open(other)
	for _, args := range [][]string{
		{"link", "add", "dummy0", "type", "dummy"},
		{"link", "set", "dummy0", "up"},
		{"address", "add", "10.8.0.1/24", "dev", "dummy0"},
		{"address", "add", "fd08::1/64", "dev", "dummy0", "nodad"},
		{"address", "delete", "10.8.0.1/24", "dev", "dummy0"},
		{"link", "set", "dummy0", "down"},
		{"link", "set", "dummy0", "name", "dummy1"},
		{"link", "delete", "dummy1"},
	} {
		forget(w)
		in(t, path, "ip", args...)
		wantChange(t, w, "ip "+strings.Join(args, " "))
	}
	select {
	case <-quiet.Changed():
		t.Error("another namespace's changes were told")
	default:
	}
	closeWatch(t, w)
	in(t, path, "ip", "link", "add", "dummy2", "type", "dummy")
	in(t, other, "ip", "link", "add", "dummy2", "type", "dummy")
	wantChange(t, quiet, "a link of the namespace that is still watched")
	closeWatch(t, quiet)
}

// A namespace without a name and a process, deleted later and gone, shows that
// one which is still there is kept.
func watchKeepsNamespace(t *testing.T, m conformance.Machine) {
	kept, gone := netip.MustParsePrefix("10.0.0.86/24"), netip.MustParsePrefix("10.0.0.87/24")
	for name, addr := range map[string]netip.Prefix{"kept": kept, "gone": gone} {
		run(t, "ip", "netns", "add", name)
		run(t, "ip", "link", "add", "link", "rdma0", "name", "net1", "netns", name, "type", "macvlan", "mode", "bridge")
		run(t, "ip", "-n", name, "address", "add", addr.String(), "dev", "net1")
		run(t, "ip", "-n", name, "link", "set", "net1", "up")
		eventuallyGID(t, m, addr.Addr(), true)
	}
	ns, err := m.Kernel().OpenNetNS("/run/netns/kept")
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Kernel().WatchLinks(ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, "ip", "netns", "delete", "kept")
	run(t, "ip", "netns", "delete", "gone")
	eventuallyGID(t, m, gone.Addr(), false)
	eventuallyGID(t, m, kept.Addr(), true)
	closeWatch(t, w)
	eventuallyGID(t, m, kept.Addr(), false)
}

// addDummyDevice makes a Soft-RoCE device on an interface of its own.
func addDummyDevice(t *testing.T, m conformance.Machine) (device, link string) {
	t.Helper()
	m.AddPlain(t, "", "dummy9", netip.MustParsePrefix("10.9.0.1/24"))
	m.AddDevice(t, "rxe9", "dummy9") // goes with its interface
	return "rxe9", "dummy9"
}

func watchDevices(t *testing.T, every time.Duration) sys.Watch {
	t.Helper()
	w, err := sys.New(sys.RescanEvery(every)).WatchDevices()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func watchesDevices(t *testing.T, m conformance.Machine) {
	w := watchDevices(t, time.Hour) // so that looking finds nothing
	addDummyDevice(t, m)
	wantChange(t, w, "rdma link add")
	conformance.Eventually(t, "the device's GIDs are told of, too", func() bool {
		select {
		case <-w.Changed():
		default:
			return false
		}
		gid, err := m.Kernel().GID("rxe9", 1, 0)
		return err == nil && !gid.GID.IsUnspecified()
	})
	run(t, "rdma", "link", "delete", "rxe9")
	wantChange(t, w, "rdma link delete")
	conformance.Eventually(t, "the device is gone", func() bool {
		names, err := m.Kernel().DeviceNames(nil)
		return err == nil && !slices.Contains(slices.Collect(maps.Values(names)), "rxe9")
	})
	closeWatch(t, w)
}

func rescans(t *testing.T, m conformance.Machine) {
	device, link := addDummyDevice(t, m)
	eventuallyState := func(want string) {
		t.Helper()
		conformance.Eventually(t, fmt.Sprintf("%s is in state %q", device, want), func() bool {
			text, err := os.ReadFile("/sys/class/infiniband/" + device + "/ports/1/state")
			return err == nil && strings.TrimSpace(string(text)) == want
		})
	}
	eventuallyState("4: ACTIVE")
	w := watchDevices(t, 100*time.Millisecond)
	run(t, "ip", "link", "set", link, "down")
	wantChange(t, w, "the port goes down")
	eventuallyState("1: DOWN")
	forget(w)
	run(t, "ip", "link", "set", link, "up")
	wantChange(t, w, "the port comes up")
	eventuallyState("4: ACTIVE")
	closeWatch(t, w)

	w = watchDevices(t, 100*time.Millisecond)
	run(t, "ip", "address", "add", "10.9.0.2/24", "dev", link)
	wantChange(t, w, "a GID comes")
	closeWatch(t, w)
}
