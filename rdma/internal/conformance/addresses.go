package conformance

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// addresses has what holds when an interface's addresses change.
func addresses() []Scenario {
	group, second := netip.MustParseAddr("239.1.12.7"), netip.MustParseAddr("239.1.12.8")
	prefix, another := netip.MustParsePrefix("10.0.0.81/24"), netip.MustParsePrefix("10.0.0.82/24")
	return []Scenario{
		{"an address that goes leaves the membership, and a new one on its id fails with EIO", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			// Deleting an interface's first address takes those of its network along.
			m.AddAddress(t, path, "net1", another)
			ch := OpenChannel(t, m)
			ns := openNetNS(t, m, path)
			id := bindIn(t, ch, ns, another.Addr())
			Join(t, ch, id, group, rdma.JoinOptions{})
			m.DeleteAddress(t, path, "net1", another)
			wantIGMP(t, m, path, "net1", group, 1)
			nothingMore(t, ch)
			request(t, id, second, rdma.JoinOptions{})
			if e := Next(t, ch); e.Type != rdma.MulticastError {
				t.Errorf("got event %+v, want MulticastError", e)
			} else {
				wantErrno(t, e.Err, syscall.EIO, "join", second.String(), "net1")
			}
			// It is there to be left, as the other one is.
			for _, g := range []netip.Addr{group, second} {
				if err := id.Leave(g); err != nil {
					t.Error(err)
				}
				wantIGMP(t, m, path, "net1", g, 0)
			}
			Join(t, ch, bindIn(t, ch, ns, prefix.Addr()), second, rdma.JoinOptions{})
		}},
		{"a bound id holds the slot of its GID", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			m.AddAddress(t, path, "net1", another)
			ch := OpenChannel(t, m)
			ns := openNetNS(t, m, path)
			joined := func() (*rdma.ID, int) {
				t.Helper()
				id := bindIn(t, ch, ns, another.Addr())
				return id, Join(t, ch, id, group, rdma.JoinOptions{}).Params.GIDIndex
			}
			id, first := joined()
			m.DeleteAddress(t, path, "net1", another)
			m.AddAddress(t, path, "net1", another)
			again, moved := joined()
			if moved == first {
				t.Errorf("got index %d while the id is bound to it", first)
			}
			for _, id := range []*rdma.ID{id, again} {
				if err := id.Close(); err != nil {
					t.Fatal(err)
				}
			}
			m.DeleteAddress(t, path, "net1", another)
			m.AddAddress(t, path, "net1", another)
			if _, index := joined(); index != first {
				t.Errorf("got index %d once no id was bound, want %d again", index, first)
			}
		}},
		{"an id bound to a second address joins for the interface", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, prefix)
			m.AddAddress(t, path, "net1", another)
			ch := OpenChannel(t, m)
			ns := openNetNS(t, m, path)
			one, two := bindIn(t, ch, ns, prefix.Addr()), bindIn(t, ch, ns, another.Addr())
			Join(t, ch, one, group, rdma.JoinOptions{})
			if e := Join(t, ch, two, group, rdma.JoinOptions{}); e.Params.GID != netip.AddrFrom16(another.Addr().As16()) {
				t.Errorf("got GID %v, want that of %v", e.Params.GID, another.Addr())
			}
			wantIGMP(t, m, path, "net1", group, 2)
			interfaces, err := m.Host().Interfaces(ns)
			if err != nil || len(interfaces) != 1 || len(interfaces[0].Addrs) != 2 {
				t.Errorf("got interfaces %+v, error %v, want net1 with both addresses", interfaces, err)
			}
		}},
	}
}
