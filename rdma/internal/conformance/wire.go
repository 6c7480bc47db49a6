package conformance

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// wire has what the switch sees.
func wire() []Scenario {
	group := netip.MustParseAddr("239.1.9.7")
	pod1 := netip.MustParsePrefix("10.0.0.61/24")
	pod2 := netip.MustParsePrefix("10.0.0.62/24")
	return []Scenario{
		{"the switch delivers to a member's port, and no longer after the leave", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			one, two := Bind(t, ch, addr0()), Bind(t, ch, addr1())
			Join(t, ch, one, group, rdma.JoinOptions{})
			EventuallySwitch(t, m, group, device0)
			Join(t, ch, two, group, rdma.JoinOptions{})
			EventuallySwitch(t, m, group, device0, device1)
			if err := one.Leave(group); err != nil {
				t.Fatal(err)
			}
			EventuallySwitch(t, m, group, device1)
			if err := two.Leave(group); err != nil {
				t.Fatal(err)
			}
			EventuallySwitch(t, m, group)
		}},
		{"the switch keeps a port for a macvlan whose sibling left", func(t *testing.T, m Machine) {
			path1, path2 := m.AddNetNS(t), m.AddNetNS(t)
			m.AddMACVLAN(t, path1, "net1", link0, pod1)
			m.AddMACVLAN(t, path2, "net1", link0, pod2)
			ch := OpenChannel(t, m)
			one := bindIn(t, ch, openNetNS(t, m, path1), pod1.Addr())
			two := bindIn(t, ch, openNetNS(t, m, path2), pod2.Addr())
			other := Bind(t, ch, addr1())
			Join(t, ch, one, group, rdma.JoinOptions{})
			Join(t, ch, two, group, rdma.JoinOptions{})
			Join(t, ch, other, group, rdma.JoinOptions{})
			EventuallySwitch(t, m, group, device0, device1)
			if err := one.Leave(group); err != nil {
				t.Fatal(err)
			}
			// Left later on another port: when the switch has believed that one, it
			// has believed the first.
			if err := other.Leave(group); err != nil {
				t.Fatal(err)
			}
			EventuallySwitch(t, m, group, device0)
			wantIGMP(t, m, path1, "net1", group, 0)
			wantIGMP(t, m, path2, "net1", group, 1)
			if err := two.Leave(group); err != nil {
				t.Fatal(err)
			}
			EventuallySwitch(t, m, group)
		}},
		{"an interface that goes under its membership tells the switch nothing", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, pod1)
			ch := OpenChannel(t, m)
			id := bindIn(t, ch, openNetNS(t, m, path), pod1.Addr())
			other := Bind(t, ch, addr1())
			Join(t, ch, id, group, rdma.JoinOptions{})
			Join(t, ch, other, group, rdma.JoinOptions{})
			EventuallySwitch(t, m, group, device0, device1)
			m.DeleteInterface(t, path, "net1")
			if err := other.Leave(group); err != nil {
				t.Fatal(err)
			}
			EventuallySwitch(t, m, group, device0) // still
			if err := id.Leave(group); err != nil {
				t.Errorf("leaving on an interface that is gone: %v", err)
			}
			_, err := id.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.ENODEV, "join", group.String(), "net1")
			nothingMore(t, ch)
		}},
	}
}
