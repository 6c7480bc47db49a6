package rdma

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

func compareAddrs() cmp.Option { return cmp.Comparer(func(a, b netip.Addr) bool { return a == b }) }

func TestPKeyIndex(t *testing.T) {
	for _, tt := range []struct {
		name  string
		table []uint16
		pkey  uint16
		want  int
	}{
		{"full", []uint16{0xffff, 0x8001}, 0x8001, 1},
		{"full before limited", []uint16{0x0001, 0xffff, 0x8001}, 0x8001, 2},
		{"full after limited", []uint16{0x8001, 0x0001}, 0x8001, 0},
		{"limited alone", []uint16{0xffff, 0x0001}, 0x8001, 1},
		{"the last of two limited", []uint16{0x0001, 0xffff, 0x0001}, 0x8001, 2},
		{"default, limited", []uint16{0x7fff}, 0xffff, 0},
		{"another partition", []uint16{0xffff, 0x8002}, 0x8001, -1},
		{"free entries are no partition", []uint16{0, 0x8000}, 0x8000, -1},
		{"empty", nil, 0xffff, -1},
	} {
		if got := pkeyIndex(tt.table, tt.pkey); got != tt.want {
			t.Errorf("%s: got index %d, want %d", tt.name, got, tt.want)
		}
	}
}

// onInfiniBand is a kernel whose id is bound to an IPoIB interface.
func onInfiniBand() *scripted {
	s := newScripted()
	s.layer = "InfiniBand"
	s.bound.PKey = 0x8001
	s.gids[4] = netip.MustParseAddr("fe80::9803:9b03:5e:1de2")
	s.pkeys = []uint16{0xffff, 0x0001, 0x8001}
	s.answer = func(uid uint64, _ netip.Addr) *sys.Event {
		e := infiniBandJoin(uid)
		return &e
	}
	return s
}

// joinNext joins and takes the event.
func joinNext(t testing.TB, ch *Channel, id *ID, group netip.Addr, opts JoinOptions) Event {
	t.Helper()
	m, err := id.Join(group, opts)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ch.Next(t.Context())
	if err != nil || e.Type != MulticastJoined || e.Membership != m || e.ID != id {
		t.Fatalf("got event %+v, error %v, want MulticastJoined", e, err)
	}
	return e
}

func TestInfiniBandMGIDAndMLIDReachQueuePairAndParams(t *testing.T) {
	qp := &recordedQP{}
	ch, id := openOn(t, onInfiniBand())
	group := netip.MustParseAddr("239.1.1.7")
	e := joinNext(t, ch, id, group, JoinOptions{QP: qp})
	want := Params{
		MGID: netip.MustParseAddr("ff12:4001:ffff::f01:107"), MLID: 0xc003, QKey: 0x01234567, QPN: 0xFFFFFF,
		GIDIndex: 4, GID: netip.MustParseAddr("fe80::9803:9b03:5e:1de2"), PKey: 0x8001, PKeyIndex: 2,
		FlowLabel: 5, HopLimit: 1, TrafficClass: 7, SL: 2, SrcPathBits: 1, StaticRate: 3, IsGlobal: true, Device: "mlx5_0", Port: 1,
	}
	if diff := cmp.Diff(want, e.Params, compareAddrs()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if err := id.Leave(group); err != nil {
		t.Fatal(err)
	}
	calls := []string{"attach [ff12:4001:ffff::f01:107]:49155", "detach [ff12:4001:ffff::f01:107]:49155"}
	if diff := cmp.Diff(calls, qp.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestRoCEParamsNeedNoTable(t *testing.T) {
	for mgid, want := range map[string]GIDType{"::ffff:239.1.1.7": RoCEv2, "ff0e::ffff:ef01:107": RoCEv1, "ff0e::1234": RoCEv1} {
		s := newScripted()
		s.answer = func(uid uint64, _ netip.Addr) *sys.Event {
			return &sys.Event{UID: uid, Type: sys.EventMulticastJoin, UD: sys.UDParam{MGID: netip.MustParseAddr(mgid).As16(), SGIDIndex: 3, Port: 1}}
		}
		ch, id := openOn(t, s)
		p := joinNext(t, ch, id, netip.MustParseAddr("239.1.1.7"), JoinOptions{}).Params
		wantParams := Params{
			MGID: netip.MustParseAddr(mgid), GIDIndex: 3, GID: netip.MustParseAddr("::ffff:10.0.0.2"), GIDType: want,
			PKey: 0xffff, Device: "mlx5_0", Port: 1,
		}
		if diff := cmp.Diff(wantParams, p, compareAddrs()); diff != "" {
			t.Errorf("parameters of %s (-want +got):\n%s", mgid, diff)
		}
		if want := []string{"names"}; !slices.Equal(s.reads, want) { // by Bind
			t.Errorf("tables read: %v", s.reads)
		}
	}
}

func TestTablesAreReadOnceForAnID(t *testing.T) {
	s := onInfiniBand()
	ch, id := openOn(t, s)
	for i := range byte(10) {
		joinNext(t, ch, id, netip.AddrFrom4([4]byte{239, 1, 1, i}), JoinOptions{})
	}
	if want := []string{"names", "gid mlx5_0/1/4", "pkeys mlx5_0/1"}; !slices.Equal(s.reads, want) {
		t.Errorf("tables read: %v, want %v", s.reads, want)
	}
}

func TestTablesThatCannotBeReadAreReadAgain(t *testing.T) {
	s := onInfiniBand()
	s.pkeysErr = syscall.ENODEV
	delete(s.gids, 4)
	ch, id := openOn(t, s)
	p := joinNext(t, ch, id, netip.MustParseAddr("239.1.1.7"), JoinOptions{}).Params
	if p.GID.IsValid() || p.PKeyIndex != -1 || p.PKey != 0x8001 {
		t.Errorf("got GID %v, P_Key %#x at %d, want none, and 0x8001 at -1", p.GID, p.PKey, p.PKeyIndex)
	}
	s.mu.Lock()
	s.gids[4] = netip.IPv6Unspecified() // a slot that isn't in use
	s.mu.Unlock()
	if p := joinNext(t, ch, id, netip.MustParseAddr("239.1.1.9"), JoinOptions{}).Params; p.GID.IsValid() {
		t.Errorf("got GID %v of a free slot, want none", p.GID)
	}
	s.mu.Lock()
	s.pkeysErr = nil
	s.gids[4] = netip.MustParseAddr("fe80::2")
	s.mu.Unlock()
	p = joinNext(t, ch, id, netip.MustParseAddr("239.1.1.8"), JoinOptions{}).Params
	if p.GID != netip.MustParseAddr("fe80::2") || p.PKeyIndex != 2 {
		t.Errorf("got GID %v, P_Key index %d, want fe80::2 and 2", p.GID, p.PKeyIndex)
	}
}

func TestMovedEntriesAreFoundAgain(t *testing.T) {
	s := onInfiniBand()
	s.gids[5] = netip.MustParseAddr("fe80::5")
	src := source{kernel: s, device: "mlx5_0", port: 1, pkey: 0x8001}
	ud := sys.UDParam{SGIDIndex: 4}
	if p := src.params(ud); p.GID != s.gids[4] || p.PKeyIndex != 2 {
		t.Fatalf("got GID %v, P_Key index %d", p.GID, p.PKeyIndex)
	}
	ud.SGIDIndex = 5
	if p := src.params(ud); p.GID != s.gids[5] {
		t.Errorf("got GID %v at index 5, want %v", p.GID, s.gids[5])
	}
	s.pkeys = []uint16{0x8001}
	src.pkeyRead = time.Now().Add(-pkeyAge)
	if p := src.params(ud); p.PKeyIndex != 0 {
		t.Errorf("got P_Key index %d after the table changed, want 0", p.PKeyIndex)
	}
}

func TestDeviceNamesAreReadOnceForManyIDs(t *testing.T) {
	s := newScripted()
	names := deviceNames{kernel: s}
	look := func(index uint32, want string) {
		t.Helper()
		if got, err := names.name(nil, index); err != nil || got != want {
			t.Errorf("device %d: got %q, error %v, want %q", index, got, err, want)
		}
	}
	for range 3 {
		look(0, "mlx5_0")
	}
	s.names[1] = "mlx5_1"
	look(1, "mlx5_1") // one that isn't known is looked for
	look(2, "")
	if len(s.reads) != 3 {
		t.Errorf("read %d times, want 3", len(s.reads))
	}
	s.names[1] = "renamed"
	names.read = time.Now().Add(-namesAge)
	look(1, "renamed")
	s.names = nil
	if got, err := names.name(nil, 7); got != "" || !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %q, error %v, want EPERM", got, err)
	}
	look(1, "renamed") // what was known is
}

func TestBindingWithoutNames(t *testing.T) {
	s := newScripted()
	s.names = nil
	ch, id := openOn(t, s)
	s.answer = func(uid uint64, group netip.Addr) *sys.Event {
		return &sys.Event{UID: uid, Type: sys.EventMulticastJoin, UD: sys.UDParam{MGID: group.As16(), Port: 1}}
	}
	if p := joinNext(t, ch, id, netip.MustParseAddr("239.1.1.7"), JoinOptions{}).Params; p.Device != "" || p.Port != 1 {
		t.Errorf("got device %q port %d, want none, and 1", p.Device, p.Port)
	}
}

func TestVerbatimMGIDs(t *testing.T) {
	mgid := netip.MustParseAddr("ff15:a01b:fe80::7")
	s := onInfiniBand()
	ch, id := openOn(t, s)
	m, err := id.JoinMGID(mgid, JoinOptions{QP: &recordedQP{}})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := ch.Next(t.Context()); err != nil || e.Type != MulticastJoined || e.Membership != m {
		t.Fatalf("got event %+v, error %v", e, err)
	}
	if !m.Verbatim() || m.Group() != mgid {
		t.Errorf("verbatim %v, group %v", m.Verbatim(), m.Group())
	}
	// The same as an IPv6 address is another group to the id, as to librdmacm.
	other := joinNext(t, ch, id, mgid, JoinOptions{Mode: SendOnlyFullMember}).Membership
	if other.Verbatim() || other == m {
		t.Errorf("joining the address gave membership %p, verbatim %v", other, other.Verbatim())
	}
	for _, join := range []func(netip.Addr, JoinOptions) (*Membership, error){id.Join, id.JoinMGID} {
		if _, err := join(mgid, JoinOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("joining again: got error %v, want EADDRINUSE", err)
		}
	}
	if err := id.LeaveMGID(mgid); err != nil {
		t.Error(err)
	}
	err = id.LeaveMGID(mgid)
	if want := "rdma: leave MGID ff15:a01b:fe80::7 on 10.0.0.2: not joined on this id: cannot assign requested address (EADDRNOTAVAIL)"; err == nil || err.Error() != want {
		t.Errorf("leaving again: got error %v, want %s", err, want)
	}
	if err := id.Leave(mgid); err != nil {
		t.Error(err)
	}
	want := []string{
		"join MGID ff15:a01b:fe80::7 FullMember as 2", "join ff15:a01b:fe80::7 SendOnlyFullMember as 3",
		"leave 2", "leave 3",
	}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestMGIDsThatAreRefused(t *testing.T) {
	s := onInfiniBand()
	_, id := openOn(t, s)
	for _, text := range []string{"239.1.1.7", "fe80::1", "::ffff:239.1.1.7", "ff15:a01b::1%ib0"} {
		if _, err := id.JoinMGID(netip.MustParseAddr(text), JoinOptions{}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: got error %v, want EINVAL", text, err)
		}
	}
	if _, err := id.JoinMGID(netip.Addr{}, JoinOptions{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no MGID: got error %v, want EINVAL", err)
	}
	if got := s.took(); len(got) > 0 {
		t.Errorf("the kernel was asked: %v", got)
	}
	s.joinErr = ENOTSUPP
	_, err := id.JoinMGID(netip.MustParseAddr("ff15:a01b::1"), JoinOptions{})
	if want := "rdma: join MGID ff15:a01b::1 on 10.0.0.2: not supported by this kind of port (ENOTSUPP 524)"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestVerbatimMGIDIsCancelledAndHasADeadline(t *testing.T) {
	mgid := netip.MustParseAddr("ff15:a01b:fe80::7")
	s := onInfiniBand()
	s.answer = nil
	ch, id := openOn(t, s)
	if _, err := id.JoinMGID(mgid, JoinOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := id.LeaveMGID(mgid); err != nil {
		t.Errorf("cancel: %v", err)
	}
	m, err := id.JoinMGID(mgid, JoinOptions{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	e, err := ch.Next(t.Context())
	if err != nil || e.Type != MulticastError || e.Membership != m || !errors.Is(e.Err, syscall.ETIMEDOUT) {
		t.Fatalf("got event %+v, error %v, want MulticastError with ETIMEDOUT", e, err)
	}
	if want := "rdma: join MGID ff15:a01b:fe80::7 on 10.0.0.2: no answer by the deadline: connection timed out (ETIMEDOUT)"; e.Err.Error() != want {
		t.Errorf("got  %v\nwant %s", e.Err, want)
	}
	if err := id.LeaveMGID(mgid); err != nil {
		t.Error(err)
	}
	want := []string{"join MGID ff15:a01b:fe80::7 FullMember as 2", "leave 2", "join MGID ff15:a01b:fe80::7 FullMember as 3", "leave 3"}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestLinkLocalGroupsNeedNoZone(t *testing.T) {
	s := onInfiniBand()
	ch, id := openOn(t, s)
	if _, err := id.Join(netip.MustParseAddr("ff12::7%ib0"), JoinOptions{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("with a zone: got error %v, want EINVAL", err)
	}
	joinNext(t, ch, id, netip.MustParseAddr("ff12::7"), JoinOptions{})
	if err := id.Bind(netip.MustParseAddr("fe80::1%ib0")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("bind to an address with a zone: got error %v, want EINVAL", err)
	}
}
