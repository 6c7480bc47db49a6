package conformance

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// joining has what holds of joining a RoCE v2 group.
func joining() []Scenario {
	group := netip.MustParseAddr("239.1.5.7")
	return []Scenario{
		{"the join's event tells how to reach the group", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			e := Join(t, ch, id, group, rdma.JoinOptions{})
			if e.Membership.Group() != group || e.Membership.ID() != id || e.Membership.Mode() != rdma.FullMember {
				t.Errorf("membership of %v, mode %v, want a full one of %v on the id", e.Membership.Group(), e.Membership.Mode(), group)
			}
			want := rdma.Params{
				MGID:     netip.MustParseAddr("::ffff:239.1.5.7"),
				QKey:     0x01234567,
				QPN:      0xFFFFFF,
				GIDIndex: e.Params.GIDIndex, // what else the port serves decides
				GID:      netip.MustParseAddr("::ffff:10.0.0.2"),
				GIDType:  rdma.RoCEv2,
				PKey:     0xffff,
				HopLimit: 64,
				IsGlobal: true,
				Port:     1,
				Device:   device0,
			}
			if diff := cmp.Diff(want, e.Params, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
		}},
		{"the join's GID is in the port's table at the join's index", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			p := Join(t, ch, Bind(t, ch, addr0()), group, rdma.JoinOptions{}).Params
			gid, err := m.Kernel().GID(p.Device, p.Port, p.GIDIndex)
			if err != nil || gid.GID != p.GID || gid.Type != string(p.GIDType) {
				t.Errorf("got %+v, error %v in the table, want %v of %s", gid, err, p.GID, p.GIDType)
			}
		}},
		{"a send-only member joins without IGMP", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			e := Join(t, ch, id, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			if want := netip.MustParseAddr("::ffff:239.1.5.7"); e.Params.MGID != want {
				t.Errorf("got MGID %v, want %v", e.Params.MGID, want)
			}
			wantIGMP(t, m, "", link0, group, 0)
		}},
		{"a second join of one address on one id is refused", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			Join(t, ch, id, group, rdma.JoinOptions{})
			for _, mode := range []rdma.JoinMode{rdma.FullMember, rdma.SendOnlyFullMember} {
				_, err := id.Join(group, rdma.JoinOptions{Mode: mode})
				wantErrno(t, err, syscall.EADDRINUSE, "join", group.String(), link0)
			}
			wantIGMP(t, m, "", link0, group, 1)
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 0)
			nothingMore(t, ch)
		}},
		{"a hundred joins at once are all confirmed by the kernel's tables", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			want := map[netip.Addr]bool{}
			for i := range 100 {
				g := netip.AddrFrom4([4]byte{239, 1, 6, byte(i)})
				request(t, id, g, rdma.JoinOptions{})
				want[g] = true
			}
			for len(want) > 0 {
				e := Next(t, ch)
				if e.Type != rdma.MulticastJoined || !want[e.Membership.Group()] {
					t.Fatalf("got event %+v, want MulticastJoined of one that is waited for", e)
				}
				delete(want, e.Membership.Group())
			}
			table := m.IGMP(t, "", link0)
			for i := range 100 {
				if g := netip.AddrFrom4([4]byte{239, 1, 6, byte(i)}); table[g] != 1 {
					t.Errorf("users of %v: got %d, want 1", g, table[g])
				}
			}
		}},
		{"an id bound by its IPv6 address joins an IPv4 group", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, netip.MustParseAddr("fd00::2"))
			e := Join(t, ch, id, group, rdma.JoinOptions{})
			if want := netip.MustParseAddr("fd00::2"); e.Params.GID != want {
				t.Errorf("got GID %v, want %v", e.Params.GID, want)
			}
			wantIGMP(t, m, "", link0, group, 1)
		}},
	}
}

// refusals has what the kernel, or the package before it, refuses.
func refusals() []Scenario {
	group := netip.MustParseAddr("239.1.7.7")
	return []Scenario{
		{"the kernel's errno comes back, ENOTSUPP included", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			_, err := id.Join(netip.MustParseAddr("ff0e::1234"), rdma.JoinOptions{})
			wantErrno(t, err, rdma.ENOTSUPP, "join", "ff0e::1234", link0, "10.0.0.2", "not supported")
			nothingMore(t, ch)
			wantErrno(t, id.Leave(netip.MustParseAddr("ff0e::1234")), syscall.EADDRNOTAVAIL)
		}},
		{"what isn't a multicast address in canonical form is refused", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			for _, addr := range []string{"10.0.0.9", "10.0.0.2", "0.0.0.0", "fd00::9", "::", "::ffff:239.1.1.7", "ff12::1%rdma0"} {
				_, err := id.Join(netip.MustParseAddr(addr), rdma.JoinOptions{})
				wantErrno(t, err, syscall.EINVAL, "join", addr, "multicast")
			}
			_, err := id.Join(netip.Addr{}, rdma.JoinOptions{})
			wantErrno(t, err, syscall.EINVAL, "join")
			_, err = id.Join(group, rdma.JoinOptions{Mode: 2})
			wantErrno(t, err, syscall.EINVAL, "join", "JoinMode(2)")
			wantIGMP(t, m, "", link0, netip.MustParseAddr("10.0.0.9"), 0)
		}},
		{"binding tells a missing address from an interface that isn't RDMA", func(t *testing.T, m Machine) {
			m.AddPlain(t, "", "plain0", netip.MustParsePrefix("10.9.0.1/24"))
			ch := OpenChannel(t, m)
			id, err := ch.NewID(nil, rdma.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Bind(netip.MustParseAddr("10.0.0.77")), syscall.EADDRNOTAVAIL, "bind", "10.0.0.77")
			wantErrno(t, id.Bind(netip.MustParseAddr("10.9.0.1")), syscall.ENODEV, "bind", "10.9.0.1")
			for _, addr := range []string{"0.0.0.0", "239.1.1.1", "::", "fe80::1%rdma0"} {
				wantErrno(t, id.Bind(netip.MustParseAddr(addr)), syscall.EINVAL, "bind", addr)
			}
			bound := Bind(t, ch, addr0())
			wantErrno(t, bound.Bind(addr1()), syscall.EINVAL, "bind", "10.0.0.3")
		}},
		{"an id that found no RDMA device is good for no other address", func(t *testing.T, m Machine) {
			m.AddPlain(t, "", "plain0", netip.MustParsePrefix("10.9.0.1/24"))
			ch := OpenChannel(t, m)
			id, err := ch.NewID(nil, rdma.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Bind(netip.MustParseAddr("10.9.0.1")), syscall.ENODEV)
			wantErrno(t, id.Bind(addr0()), syscall.ENODEV)
		}},
		{"an id that found no interface can be bound to another address", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id, err := ch.NewID(nil, rdma.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Bind(netip.MustParseAddr("10.0.0.77")), syscall.EADDRNOTAVAIL)
			if err := id.Bind(addr0()); err != nil {
				t.Error(err)
			}
		}},
		{"port space IPoIB is for IPoIB interfaces alone", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id, err := ch.NewID(nil, rdma.PortSpaceIPoIB)
			if err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Bind(addr0()), syscall.EINVAL, "bind", "10.0.0.2")
		}},
		{"joining on an id that isn't bound gives EINVAL", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id, err := ch.NewID(nil, rdma.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			_, err = id.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.EINVAL, "join", group.String())
		}},
		{"an unknown port space gives EINVAL", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			_, err := ch.NewID(nil, 0x7777)
			wantErrno(t, err, syscall.EINVAL, "create id")
		}},
	}
}
