package conformance

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// cancelling has what holds of leaving before the join's event was taken.
func cancelling() []Scenario {
	group := netip.MustParseAddr("239.1.2.7")
	return []Scenario{
		{"leaving before the join has completed cancels it", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			qp := &queuePair{}
			for range 20 {
				request(t, id, group, rdma.JoinOptions{QP: qp})
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
			}
			wantIGMP(t, m, "", link0, group, 0)
			nothingMore(t, ch)
			qp.want(t)
		}},
		{"nothing is delivered after leaving, not even what the channel has read already", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			first := request(t, id, group, rdma.JoinOptions{})
			second := netip.MustParseAddr("239.1.2.8")
			// Events come in order, so that this one's being there to take means
			// that the first one's was queued.
			third := request(t, id, netip.MustParseAddr("239.1.2.9"), rdma.JoinOptions{})
			request(t, id, second, rdma.JoinOptions{})
			if e := Next(t, ch); e.Membership != first {
				t.Fatalf("got event %+v, want the first membership's", e)
			}
			if err := id.Leave(third.Group()); err != nil {
				t.Fatal(err)
			}
			if e := Next(t, ch); e.Membership == nil || e.Membership.Group() != second {
				t.Fatalf("got event %+v, want that of %v", e, second)
			}
			nothingMore(t, ch)
		}},
		{"leaving from the event loop ends the membership there and then", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			request(t, id, group, rdma.JoinOptions{})
			e := Next(t, ch)
			if err := e.ID.Leave(e.Membership.Group()); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 0)
			nothingMore(t, ch)
		}},
		{"leaving from another goroutine while the event loop waits", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			Join(t, ch, id, group, rdma.JoinOptions{})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if e, err := ch.Next(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("got event %+v, error %v, want none and the context's end", e, err)
				}
			})
			if err := id.Leave(group); err != nil {
				t.Error(err)
			}
			cancel()
			wg.Wait()
			wantIGMP(t, m, "", link0, group, 0)
		}},
		{"joins and leaves from many goroutines end with nothing joined", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			ctx, cancel := context.WithCancel(t.Context())
			var loop, workers sync.WaitGroup
			loop.Go(func() {
				for {
					e, err := ch.Next(ctx)
					if err != nil {
						return
					}
					if e.Type != rdma.MulticastJoined {
						t.Errorf("got event %+v, want MulticastJoined", e)
					}
				}
			})
			ids := []*rdma.ID{Bind(t, ch, addr0()), Bind(t, ch, addr1())}
			for w := range 8 {
				workers.Go(func() {
					own := netip.AddrFrom4([4]byte{239, 1, 3, byte(w)})
					for range 25 {
						for _, id := range ids {
							if _, err := id.Join(own, rdma.JoinOptions{}); err != nil {
								t.Error(err)
							}
							if err := id.Leave(own); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			workers.Wait()
			cancel()
			loop.Wait()
			for w := range 8 {
				own := netip.AddrFrom4([4]byte{239, 1, 3, byte(w)})
				wantIGMP(t, m, "", link0, own, 0)
				wantIGMP(t, m, "", link1, own, 0)
			}
		}},
	}
}
