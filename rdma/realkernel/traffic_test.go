//go:build realkernel

package realkernel

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
)

// realOnly has what takes packets, librdmacm, or namespaces that really end.
func realOnly() []conformance.Scenario {
	group := netip.MustParseAddr(heldGroup)
	mgid := netip.AddrFrom16(group.As16())
	sender, receiver := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr(heldAddr)
	return []conformance.Scenario{
		{Name: "packets stop after leaving although another process on the interface stays a member", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, receiver)
			qp := openEndpoint(t, "rxe1")
			conformance.Join(t, ch, id, group, rdma.JoinOptions{QP: qp})
			holdElsewhere(t)
			eventuallyUsers(t, m, "rdma1", group, 2)
			// The witness shows that the packets still come to the port.
			witness := openEndpoint(t, "rxe1")
			if err := witness.AttachMulticast(mgid, 0); err != nil {
				t.Fatal(err)
			}
			conformance.EventuallySwitch(t, m, group, "rxe1")

			first := mckeySends(t, sender, group)
			witness.eventuallyReceived(t, first)
			qp.eventuallyReceived(t, first)

			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantUsers(t, m, "rdma1", group, 1)
			witness.eventuallyReceived(t, first+mckeySends(t, sender, group))
			if got := qp.received(t); got != first {
				t.Errorf("the queue pair received %d packets, want none after the first %d", got, first)
			}
		}},
		{Name: "a verbs-only receiver gets what mckey sends exactly while its port is a member", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, receiver)
			app := openEndpoint(t, "rxe1")
			if err := app.AttachMulticast(mgid, 0); err != nil {
				t.Fatal(err)
			}
			barrier := newBarrier(t, m, ch, sender, receiver)
			total := 0
			for _, member := range []bool{false, true, false} {
				if member {
					conformance.Join(t, ch, id, group, rdma.JoinOptions{})
					conformance.EventuallySwitch(t, m, group, "rxe1")
				} else if total > 0 {
					if err := id.Leave(group); err != nil {
						t.Fatal(err)
					}
					conformance.EventuallySwitch(t, m, group)
				}
				sent := mckeySends(t, sender, group)
				if member {
					total += sent
				}
				barrier.pass(t)
				if got := app.received(t); got != total {
					t.Errorf("member %v: received %d packets in all, want %d", member, got, total)
				}
			}
		}},
		{Name: "mckey receives what is sent by the join event's parameters", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			e := conformance.Join(t, ch, conformance.Bind(t, ch, sender), group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			mckey := exec.Command("mckey", "-b", receiver.String(), "-m", group.String(), "-C", "10")
			mckey.Stderr = os.Stderr
			if err := mckey.Start(); err != nil {
				t.Fatal(err)
			}
			eventuallyUsers(t, m, "rdma1", group, 1)
			conformance.EventuallySwitch(t, m, group, "rxe1")
			// mckey attaches its queue pair after its join; a packet before that is
			// lost, so that more than the 10 that it waits for may be needed.
			qp := openEndpoint(t, "rxe0")
			done := make(chan error, 1)
			go func() { done <- mckey.Wait() }()
			conformance.Eventually(t, "mckey ends after 10 packets", func() bool {
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("mckey: %v", err)
					}
					return true
				default:
					qp.send(t, e.Params, 1)
					return false
				}
			})
			wantUsers(t, m, "rdma1", group, 0)
		}},
		{Name: "mckey's membership and ours on one interface are counted, whoever leaves first", Run: func(t *testing.T, m conformance.Machine) {
			ch := conformance.OpenChannel(t, m)
			id := conformance.Bind(t, ch, receiver)
			for _, oursFirst := range []bool{true, false} {
				conformance.Join(t, ch, id, group, rdma.JoinOptions{})
				kill := startMckey(t, "-b", receiver.String(), "-m", group.String(), "-C", "1000")
				eventuallyUsers(t, m, "rdma1", group, 2)
				leave := func() {
					if err := id.Leave(group); err != nil {
						t.Error(err)
					}
				}
				first, second := leave, kill
				if !oursFirst {
					first, second = kill, leave
				}
				first()
				eventuallyUsers(t, m, "rdma1", group, 1)
				conformance.EventuallySwitch(t, m, group, "rxe1")
				second()
				eventuallyUsers(t, m, "rdma1", group, 0)
				conformance.EventuallySwitch(t, m, group)
			}
		}},
		{Name: "a namespace ends with the id that was in it", Run: func(t *testing.T, m conformance.Machine) {
			const name = "ending"
			addr := netip.MustParsePrefix("10.0.0.81/24")
			run(t, "ip", "netns", "add", name)
			run(t, "ip", "link", "add", "link", "rdma0", "name", "net1", "netns", name, "type", "macvlan", "mode", "bridge")
			run(t, "ip", "-n", name, "address", "add", addr.String(), "dev", "net1")
			run(t, "ip", "-n", name, "link", "set", "net1", "up")
			eventuallyGID(t, m, addr.Addr(), true)
			ns, err := m.Host().OpenNetNS("/run/netns/" + name)
			if err != nil {
				t.Fatal(err)
			}
			ch := conformance.OpenChannel(t, m)
			id, err := ch.NewID(ns, rdma.PortSpaceUDP)
			if err != nil {
				t.Fatal(err)
			}
			if err := id.Bind(addr.Addr()); err != nil {
				t.Fatal(err)
			}
			if err := ns.Close(); err != nil {
				t.Fatal(err)
			}
			run(t, "ip", "netns", "delete", name)
			// The namespace has no name any more and no handle, but still works.
			conformance.Join(t, ch, id, group, rdma.JoinOptions{})
			conformance.EventuallySwitch(t, m, group, "rxe0")
			if err := id.Close(); err != nil {
				t.Fatal(err)
			}
			eventuallyGID(t, m, addr.Addr(), false)
		}},
		{Name: "rdmamc holds a membership until it is interrupted", Run: rdmamcHolds},
		{Name: "rdmamc probes, and watches what is there and what changes", Run: rdmamcWatches},
		{Name: "the bytes that the kernel gets are librdmacm's", Run: sameBytes},
	}
}

// barrier tells when everything sent before has arrived: packets from one
// interface to another come in order, and it sends one on a group of its own.
type barrier struct {
	from, to *endpoint
	params   rdma.Params
	passed   int
}

func newBarrier(t *testing.T, m conformance.Machine, ch *rdma.Channel, sender, receiver netip.Addr) *barrier {
	t.Helper()
	group := netip.MustParseAddr("239.3.255.1")
	b := &barrier{from: openEndpoint(t, "rxe0"), to: openEndpoint(t, "rxe1")}
	id := conformance.Bind(t, ch, receiver)
	t.Cleanup(func() { // before the queue pair goes
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	})
	conformance.Join(t, ch, id, group, rdma.JoinOptions{QP: b.to})
	b.params = conformance.Join(t, ch, conformance.Bind(t, ch, sender), group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember}).Params
	conformance.EventuallySwitch(t, m, group, "rxe1")
	return b
}

func (b *barrier) pass(t *testing.T) {
	t.Helper()
	b.from.send(t, b.params, 1)
	b.passed++
	b.to.eventuallyReceived(t, b.passed)
}

func wantUsers(t *testing.T, m conformance.Machine, link string, group netip.Addr, users int) {
	t.Helper()
	if got := m.IGMP(t, "", link)[group]; got != users {
		t.Errorf("users of %v on %s: got %d, want %d", group, link, got, users)
	}
}

func eventuallyUsers(t *testing.T, m conformance.Machine, link string, group netip.Addr, users int) {
	t.Helper()
	conformance.Eventually(t, "IGMP users of "+group.String()+" on "+link, func() bool {
		return m.IGMP(t, "", link)[group] == users
	})
}
