package conformance

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// closing has what holds of closing ids and channels.
func closing() []Scenario {
	groups := []netip.Addr{netip.MustParseAddr("239.1.4.1"), netip.MustParseAddr("239.1.4.2")}
	return []Scenario{
		{"closing an id leaves all its groups and detaches", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id, other := Bind(t, ch, addr0()), Bind(t, ch, addr0())
			qp := &queuePair{}
			for _, g := range groups {
				Join(t, ch, id, g, rdma.JoinOptions{})
			}
			attached := netip.MustParseAddr("239.1.4.3")
			Join(t, ch, id, attached, rdma.JoinOptions{QP: qp})
			Join(t, ch, other, groups[0], rdma.JoinOptions{})
			if err := id.Close(); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, groups[0], 1)
			wantIGMP(t, m, "", link0, groups[1], 0)
			mgid := netip.MustParseAddr("::ffff:239.1.4.3")
			qp.want(t, call{"attach", mgid, 0}, call{"detach", mgid, 0})
			if err := id.Close(); err != nil {
				t.Errorf("closing the id a second time: %v", err)
			}
			nothingMore(t, ch)
		}},
		{"closing an id cancels its unfinished joins", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			for _, g := range groups {
				request(t, id, g, rdma.JoinOptions{})
			}
			if err := id.Close(); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				wantIGMP(t, m, "", link0, g, 0)
			}
			nothingMore(t, ch)
		}},
		{"closing the channel leaves everything and detaches", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			qp := &queuePair{}
			Join(t, ch, Bind(t, ch, addr0()), groups[0], rdma.JoinOptions{QP: qp})
			Join(t, ch, Bind(t, ch, addr1()), groups[1], rdma.JoinOptions{})
			if err := ch.Close(); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, groups[0], 0)
			wantIGMP(t, m, "", link1, groups[1], 0)
			mgid := netip.MustParseAddr("::ffff:239.1.4.1")
			qp.want(t, call{"attach", mgid, 0}, call{"detach", mgid, 0})
			if err := ch.Close(); err != nil {
				t.Errorf("closing the channel a second time: %v", err)
			}
		}},
		{"everything gives net.ErrClosed after closing", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id, unbound := Bind(t, ch, addr0()), Bind(t, ch, addr0())
			Join(t, ch, id, groups[0], rdma.JoinOptions{})
			if err := unbound.Close(); err != nil {
				t.Fatal(err)
			}
			wantClosed(t, "bind on a closed id", unbound.Bind(addr1()))
			if err := ch.Close(); err != nil {
				t.Fatal(err)
			}
			_, err := ch.Next(t.Context())
			wantClosed(t, "next", err)
			_, err = ch.NewID(nil, rdma.PortSpaceUDP)
			wantClosed(t, "new id", err)
			_, err = id.Join(groups[1], rdma.JoinOptions{})
			wantClosed(t, "join", err)
			wantClosed(t, "leave", id.Leave(groups[0]))
			if err := id.Close(); err != nil {
				t.Errorf("closing the id after its channel: %v", err)
			}
		}},
		{"closing the channel wakes the event loop", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := ch.Next(t.Context())
				wantClosed(t, "next", err)
			})
			if err := ch.Close(); err != nil {
				t.Error(err)
			}
			wg.Wait()
		}},
		{"waiting for an event ends with its context", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := ch.Next(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want the context's", err)
			}
			nothingMore(t, ch)
		}},
	}
}

func wantClosed(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("%s: got error %v, want net.ErrClosed", what, err)
	}
}
