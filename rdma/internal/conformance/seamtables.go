package conformance

import (
	"maps"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// seamTables has what the kernel's tables tell, and what a RoCE port refuses.
func seamTables() []Scenario {
	group := netip.MustParseAddr("239.1.13.7")
	prefix := netip.MustParsePrefix("10.0.0.91/24")
	return []Scenario{
		{"on RoCE v2 there are no groups but IPv4 ones, whatever they're named by", func(t *testing.T, m Machine) {
			cm := openCM(t, m)
			id := boundID(t, cm, 77)
			for _, flags := range []uint16{sys.JoinFullMember, sys.JoinSendOnlyFullMember} {
				_, err := cm.Join(id, 1001, netip.MustParseAddr("ff0e::1234"), flags)
				wantRaw(t, "join an IPv6 group", err, rdma.ENOTSUPP)
				for _, mgid := range []string{"ff15:a01b:fe80::7", "ff0e::ffff:ef01:d07"} {
					_, err = cm.JoinMGID(id, 1001, netip.MustParseAddr(mgid), flags)
					wantRaw(t, "join MGID "+mgid, err, rdma.ENOTSUPP)
				}
			}
			// None of them is there to be left.
			if _, err := cm.Leave(0); err == nil {
				t.Error("left a membership that wasn't taken")
			}
		}},
		{"an MGID is refused on RoCE v2, with a reason", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			mgid := netip.MustParseAddr("ff15:a01b:fe80::7")
			_, err := id.JoinMGID(mgid, rdma.JoinOptions{})
			wantErrno(t, err, rdma.ENOTSUPP, "join", mgid.String(), link0, "not supported")
			wantErrno(t, id.LeaveMGID(mgid), syscall.EADDRNOTAVAIL, "leave", mgid.String())
			nothingMore(t, ch)
		}},
		{"the kernel counts IGMP users by interface and namespace", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			ns, err := m.Kernel().OpenNetNS(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := ns.Close(); err != nil {
					t.Error(err)
				}
			})
			users := func(ns sys.NetNS, link string) int {
				t.Helper()
				table, err := m.Kernel().IGMP(ns, link)
				if err != nil {
					t.Fatal(err)
				}
				return table[group]
			}
			cm := openCM(t, m)
			id, err := cm.CreateID(ns, 77, sys.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			if err := cm.Bind(id, prefix.Addr()); err != nil {
				t.Fatal(err)
			}
			joinCM(t, cm, id, 1001, group)
			handle := joinCM(t, cm, id, 1002, group)
			if got := users(ns, "net1"); got != 2 {
				t.Errorf("got %d users on net1, want 2", got)
			}
			if got := users(nil, link0) + users(nil, "net1") + users(ns, "lo"); got != 0 {
				t.Errorf("got %d users elsewhere, want none", got)
			}
			if _, err := cm.Leave(handle); err != nil {
				t.Fatal(err)
			}
			if got, want := users(ns, "net1"), m.IGMP(t, path, "net1")[group]; got != 1 || want != 1 {
				t.Errorf("got %d users, by the table %d, want 1", got, want)
			}
			if table, err := m.Kernel().IGMP(ns, "missing"); err != nil || len(table) != 0 {
				t.Errorf("an interface that isn't there: got %v, error %v, want no groups", table, err)
			}
		}},
		{"the kernel's tables tell a RoCE port's P_Key and GIDs", func(t *testing.T, m Machine) {
			for _, device := range []string{device0, device1} {
				pkeys, err := m.Kernel().PKeys(device, 1)
				if err != nil || len(pkeys) == 0 || pkeys[0] != 0xffff {
					t.Errorf("%s: got P_Keys %#x, error %v, want the default one first", device, pkeys, err)
				}
			}
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			devices, err := m.Kernel().Devices(nil)
			if err != nil {
				t.Fatal(err)
			}
			want := map[netip.Addr]string{
				netip.MustParseAddr("::ffff:10.0.0.2"): link0,
				netip.MustParseAddr("fd00::2"):         link0,
				netip.AddrFrom16(prefix.Addr().As16()): "net1", // of another namespace
			}
			got := map[netip.Addr]string{}
			for _, g := range devices[0].Ports[0].GIDs {
				if _, ok := want[g.GID]; ok && g.Type == string(rdma.RoCEv2) {
					got[g.GID] = g.Interface
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: got GIDs %v, want %v of RoCE v2", devices[0].Name, got, want)
			}
			for name, ask := range map[string]func() error{
				"P_Keys":     func() error { _, err := m.Kernel().PKeys("missing0", 1); return err },
				"link layer": func() error { _, err := m.Kernel().LinkLayer("missing0", 1); return err },
				"GID":        func() error { _, err := m.Kernel().GID("missing0", 1, 0); return err },
				"port":       func() error { _, err := m.Kernel().PKeys(device0, 2); return err },
			} {
				wantRaw(t, name+" of what isn't there", ask(), syscall.ENOENT)
			}
		}},
		{"watches tell of interfaces, addresses and devices that come and go", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			ns, err := m.Kernel().OpenNetNS(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := ns.Close(); err != nil {
					t.Error(err)
				}
			})
			watched := func(w sys.Watch, err error) sys.Watch {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { ended(t, w) })
				return w
			}
			links, devices := watched(m.Kernel().WatchLinks(ns)), watched(m.Kernel().WatchDevices())
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			told(t, "interface added", links)
			told(t, "its GIDs", devices)
			m.AddAddress(t, path, "net1", netip.MustParsePrefix("10.0.0.92/24"))
			told(t, "address added", links)
			m.DeleteAddress(t, path, "net1", netip.MustParsePrefix("10.0.0.92/24"))
			told(t, "address deleted", links)
			m.DeleteInterface(t, path, "net1")
			told(t, "interface deleted", links)
			m.RemoveDevice(t, device1)
			told(t, "device removed", devices)
			m.AddDevice(t, device1, link1)
			told(t, "device added", devices)
		}},
	}
}

// told waits until a watch tells of a change. A real kernel may tell of one
// change several times, and so of the one before.
func told(t *testing.T, what string, w sys.Watch) {
	t.Helper()
	select {
	case _, open := <-w.Changed():
		if !open {
			t.Fatalf("%s: the watch has ended: %v", what, w.Err())
		}
	case <-time.After(Patience):
		t.Fatalf("%s: not told within %v", what, Patience)
	}
}

// ended closes a watch, which then tells nothing more.
func ended(t *testing.T, w sys.Watch) {
	t.Helper()
	for range 2 {
		if err := w.Close(); err != nil {
			t.Errorf("close the watch: %v", err)
		}
	}
	for range w.Changed() { // what it had to tell
	}
	if err := w.Err(); err != nil {
		t.Errorf("a closed watch: %v, want no error", err)
	}
}
