package rdma

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

type recordedQP struct{ calls []string }

func (q *recordedQP) AttachMulticast(mgid netip.Addr, mlid uint16) error {
	q.calls = append(q.calls, "attach "+netip.AddrPortFrom(mgid, mlid).String())
	return nil
}

func (q *recordedQP) DetachMulticast(mgid netip.Addr, mlid uint16) error {
	q.calls = append(q.calls, "detach "+netip.AddrPortFrom(mgid, mlid).String())
	return nil
}

// openScripted gives a channel with one bound id that joined 239.1.1.7; its
// event hasn't come yet. The uids are the id's, the membership's.
func openScripted(t testing.TB, opts JoinOptions) (*scripted, *Channel, *ID, *Membership) {
	t.Helper()
	s := newScripted()
	ch, id := openOn(t, s)
	m, err := id.Join(netip.MustParseAddr("239.1.1.7"), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, ch, id, m
}

// openOn gives a channel with one bound id.
func openOn(t testing.TB, s *scripted) (*Channel, *ID) {
	t.Helper()
	ch, err := NewHost(s).OpenChannel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ch.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	id, err := ch.NewID(nil, PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Bind(netip.MustParseAddr("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	return ch, id
}

// infiniBandJoin is the event of a group as InfiniBand gives it.
func infiniBandJoin(uid uint64) sys.Event {
	return sys.Event{UID: uid, Type: sys.EventMulticastJoin, UD: sys.UDParam{
		QPN: sys.QPNMulticast, QKey: 0x01234567, MGID: netip.MustParseAddr("ff12:4001:ffff::f01:107").As16(), MLID: 0xc003,
		SL: 2, FlowLabel: 5, HopLimit: 1, TrafficClass: 7, StaticRate: 3, SrcPathBits: 1, IsGlobal: true, Port: 1, SGIDIndex: 4,
	}}
}

func TestErrorsOfEitherSignAreTold(t *testing.T) {
	for _, tt := range []struct {
		status int32
		want   syscall.Errno
	}{{-102, syscall.ENETRESET}, {102, syscall.ENETRESET}, {0, syscall.EIO}} {
		s, ch, _, m := openScripted(t, JoinOptions{})
		s.events <- sys.Event{UID: s.uid(1), Type: sys.EventMulticastError, Status: tt.status}
		e, err := ch.Next(t.Context())
		if err != nil || e.Type != MulticastError || e.Membership != m || !errors.Is(e.Err, tt.want) {
			t.Errorf("status %d: got event %+v, error %v, want %v", tt.status, e, err, tt.want)
		}
	}
}

func TestEventsOfAnID(t *testing.T) {
	s, ch, id, _ := openScripted(t, JoinOptions{})
	for kind, want := range map[uint32]EventType{sys.EventDeviceRemoval: DeviceRemoval, sys.EventAddrChange: AddressChange} {
		s.events <- sys.Event{UID: s.uid(0), Type: kind}
		if e, err := ch.Next(t.Context()); err != nil || e.Type != want || e.ID != id || e.Membership != nil {
			t.Errorf("got event %+v, error %v, want %v of the id", e, err, want)
		}
	}
}

func TestEventsThatConcernNobodyAreDropped(t *testing.T) {
	s, ch, _, m := openScripted(t, JoinOptions{})
	go func() {
		for _, e := range []sys.Event{
			{UID: 0, Type: sys.EventMulticastJoin},
			{UID: 99, Type: sys.EventMulticastJoin},
			{UID: 99, Type: sys.EventMulticastError},
			{UID: 99, Type: sys.EventDeviceRemoval},
			{UID: s.uid(0), Type: sys.EventMulticastJoin},  // an id's cookie
			{UID: s.uid(1), Type: sys.EventDeviceRemoval},  // a membership's
			{UID: s.uid(1), Type: 9},                       // ESTABLISHED, of connections
			{UID: s.uid(1), Type: 0xFFFFFFFF, Status: -99}, // nothing at all
			infiniBandJoin(s.uid(1)),
			infiniBandJoin(s.uid(1)), // again
			{UID: s.uid(1), Type: sys.EventMulticastError, Status: -102},
		} {
			select {
			case s.events <- e:
			case <-s.closed:
				return
			}
		}
	}()
	for _, want := range []EventType{MulticastJoined, MulticastError} {
		if e, err := ch.Next(t.Context()); err != nil || e.Type != want || e.Membership != m {
			t.Fatalf("got event %+v, error %v, want %v of the membership", e, err, want)
		}
	}
}

func TestKernelThatGivesNoMoreEvents(t *testing.T) {
	s, ch, _, _ := openScripted(t, JoinOptions{})
	s.errs <- syscall.EFAULT
	for range 2 {
		_, err := ch.Next(t.Context())
		var op *OpError
		if !errors.Is(err, syscall.EFAULT) || !errors.As(err, &op) || op.Op != "get event" {
			t.Errorf("got error %v, want EFAULT of getting an event", err)
		}
	}
}

// Whatever the kernel sends, Next tells of nothing but the id and the
// membership that there are, and of the membership's end once.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{1, 2, 12, 0})
	f.Add([]byte{2, 12, 0, 2, 13, 0x9a, 2, 12, 0, 1, 11, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		s, ch, id, m := openScripted(t, JoinOptions{QP: &recordedQP{}})
		go func() {
			for ; len(script) >= 3; script = script[3:] {
				e := infiniBandJoin(uint64(script[0]))
				e.Type, e.Status = uint32(script[1]), int32(int8(script[2]))
				select {
				case s.events <- e:
				case <-s.closed:
					return
				}
			}
			select {
			case s.errs <- syscall.EFAULT: // the end
			case <-s.closed:
			}
		}()
		joined, failed := 0, 0
		for {
			e, err := ch.Next(t.Context())
			if err != nil {
				if !errors.Is(err, syscall.EFAULT) {
					t.Fatalf("got error %v, want the script's end", err)
				}
				break
			}
			switch e.Type {
			case MulticastJoined:
				joined++
			case MulticastError:
				failed++
			case DeviceRemoval, AddressChange:
				if e.Membership != nil {
					t.Errorf("a membership in %+v", e)
				}
				continue
			default:
				t.Errorf("event %+v", e)
			}
			if e.ID != id || e.Membership != m {
				t.Errorf("event %+v of another membership", e)
			}
		}
		if joined > 1 || failed > 1 {
			t.Errorf("joined %d times, failed %d times", joined, failed)
		}
	})
}
