package rdma

import (
	"net/netip"
	"os"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// instant is a kernel that costs nothing, so that what is measured is this
// package's own.
type instant struct {
	sys.Kernel // nil: what isn't below isn't called
	queue      chan sys.Event
	closed     chan struct{}
}

func newInstant() *instant {
	return &instant{queue: make(chan sys.Event, 4096), closed: make(chan struct{})}
}

func (k *instant) OpenCM() (sys.CM, error) { return k, nil }

func (k *instant) DeviceNames(sys.NetNS) (map[uint32]string, error) { return nil, nil }

func (k *instant) Links(sys.NetNS) ([]sys.Link, error) { return nil, nil }

func (k *instant) CreateID(sys.NetNS, uint64, uint16) (uint32, error) { return 1, nil }

func (k *instant) Bind(uint32, netip.Addr) error { return nil }

func (k *instant) QueryAddr(uint32) (sys.BoundAddr, error) { return sys.BoundAddr{Port: 1}, nil }

func (k *instant) Join(_ uint32, uid uint64, group netip.Addr, _ uint16) (uint32, error) {
	k.queue <- sys.Event{UID: uid, Type: sys.EventMulticastJoin, UD: sys.UDParam{MGID: group.As16(), Port: 1}}
	return 1, nil
}

func (k *instant) JoinMGID(id uint32, uid uint64, mgid netip.Addr, mode uint16) (uint32, error) {
	return k.Join(id, uid, mgid, mode)
}

func (k *instant) Leave(uint32) (uint32, error) { return 1, nil }

func (k *instant) Destroy(uint32) (uint32, error) { return 0, nil }

func (k *instant) GetEvent() (sys.Event, error) {
	select {
	case e := <-k.queue:
		return e, nil
	case <-k.closed:
		return sys.Event{}, os.ErrClosed
	}
}

func (k *instant) Close() error {
	close(k.closed)
	return nil
}

// openInstant gives an id on a kernel that costs nothing.
func openInstant(tb testing.TB) (*Channel, *ID) {
	tb.Helper()
	ch, err := NewHost(newInstant()).OpenChannel()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := ch.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	id, err := ch.NewID(nil, PortSpaceUDP)
	if err != nil {
		tb.Fatal(err)
	}
	if err := id.Bind(netip.MustParseAddr("10.0.0.2")); err != nil {
		tb.Fatal(err)
	}
	return ch, id
}

// roundTrip joins, takes the event, and leaves.
func roundTrip(tb testing.TB, ch *Channel, id *ID, group netip.Addr) {
	if _, err := id.Join(group, JoinOptions{}); err != nil {
		tb.Fatal(err)
	}
	if e, err := ch.Next(tb.Context()); err != nil || e.Type != MulticastJoined {
		tb.Fatalf("got event %+v, error %v", e, err)
	}
	if err := id.Leave(group); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkRoundTrip is join, event and leave, without the kernel's part.
func BenchmarkRoundTrip(b *testing.B) {
	ch, id := openInstant(b)
	group := netip.MustParseAddr("239.1.1.7")
	b.ReportAllocs()
	for b.Loop() {
		roundTrip(b, ch, id, group)
	}
}

// BenchmarkJoinManyThenLeave is the same with 1,024 groups joined before the
// first event is taken.
func BenchmarkJoinManyThenLeave(b *testing.B) {
	ch, id := openInstant(b)
	const groups = 1024
	b.ReportAllocs()
	for b.Loop() {
		for i := range groups {
			if _, err := id.Join(netip.AddrFrom4([4]byte{239, 1, byte(i >> 8), byte(i)}), JoinOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		for range groups {
			if _, err := ch.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		for i := range groups {
			if err := id.Leave(netip.AddrFrom4([4]byte{239, 1, byte(i >> 8), byte(i)})); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/groups, "ns/group")
}

// A membership is one object, and its deadline a timer and its function: more
// than that a round trip doesn't take.
func TestAllocationsOfARoundTrip(t *testing.T) {
	ch, id := openInstant(t)
	group := netip.MustParseAddr("239.1.1.7")
	if allocs := testing.AllocsPerRun(100, func() { roundTrip(t, ch, id, group) }); allocs > 3 {
		t.Errorf("%v allocations in a round trip, want 3", allocs)
	}
}
