package conformance

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// removal has what holds when a device goes.
func removal() []Scenario {
	group := netip.MustParseAddr("239.1.10.7")
	return []Scenario{
		{"without the module rdma_ucm everything says so, and works once it is loaded", func(t *testing.T, m Machine) {
			ch, err := m.Host().OpenChannel()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.UnloadUCM(); err == nil {
				t.Error("the module was unloaded while its file was open")
			}
			if err := ch.Close(); err != nil {
				t.Fatal(err)
			}
			if err := m.UnloadUCM(); err != nil {
				t.Fatal(err)
			}
			loaded := false
			t.Cleanup(func() {
				if !loaded {
					m.LoadUCM(t)
				}
			})
			if _, err := m.Host().OpenChannel(); !errors.Is(err, rdma.ErrUnavailable) || !errors.Is(err, syscall.ENOENT) {
				t.Errorf("open: got error %v, want ErrUnavailable and ENOENT", err)
			}
			if _, err := m.Host().Interfaces(nil); !errors.Is(err, rdma.ErrUnavailable) {
				t.Errorf("interfaces: got error %v, want ErrUnavailable", err)
			}
			if devices, err := m.Host().Devices(nil); err != nil || len(devices) != 2 {
				t.Errorf("devices: got %+v, error %v, want both all the same", devices, err)
			}
			m.LoadUCM(t)
			loaded = true
			Eventually(t, "rdma_cm is there again", func() bool {
				ch, err := m.Host().OpenChannel()
				if err != nil {
					return false
				}
				return ch.Close() == nil
			})
			again := OpenChannel(t, m)
			Join(t, again, Bind(t, again, addr0()), group, rdma.JoinOptions{})
		}},
		{"a device that goes takes its memberships with it and says so", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id, other := Bind(t, ch, addr0()), Bind(t, ch, addr1())
			qp := &queuePair{}
			Join(t, ch, id, group, rdma.JoinOptions{QP: qp})
			Join(t, ch, other, group, rdma.JoinOptions{})
			m.RemoveDevice(t, device0)
			if e := Next(t, ch); e.Type != rdma.DeviceRemoval || e.ID != id {
				t.Errorf("got event %+v, want DeviceRemoval of the id", e)
			}
			eventuallyIGMP(t, m, "", link0, group, 0)
			wantIGMP(t, m, "", link1, group, 1)

			wantErrno(t, id.Leave(group), syscall.ENXIO, "leave", group.String(), link0)
			mgid := netip.MustParseAddr("::ffff:239.1.10.7")
			qp.want(t, call{"attach", mgid, 0}, call{"detach", mgid, 0})
			_, err := id.Join(group, rdma.JoinOptions{})
			wantErrno(t, err, syscall.ENXIO, "join", group.String(), link0)
			if err := id.Close(); err != nil {
				t.Errorf("closing the id: %v", err)
			}

			interfaces, err := m.Host().Interfaces(nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(interfaces) != 1 || interfaces[0].Name != link1 {
				t.Errorf("got interfaces %+v, want %s alone", interfaces, link1)
			}
			m.AddDevice(t, device0, link0)
			var again *rdma.ID
			Eventually(t, "rdma_cm binds to the device that is back", func() bool {
				id, err := ch.NewID(nil, rdma.PortSpaceUDP)
				if err != nil {
					t.Fatal(err)
				}
				if err := id.Bind(addr0()); err != nil {
					if err := id.Close(); err != nil {
						t.Error(err)
					}
					return false
				}
				again = id
				return true
			})
			Join(t, ch, again, group, rdma.JoinOptions{})
			wantIGMP(t, m, "", link0, group, 1)
		}},
	}
}
