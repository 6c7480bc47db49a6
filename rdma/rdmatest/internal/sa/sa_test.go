package sa

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The ports of the tests' subnet. port5 isn't in the partition 0x8001.
const (
	port1, port2, port3 = uint64(0x1001), uint64(0x1002), uint64(0x1003)
	slow                = uint64(0x1004)
	port5               = uint64(0x1005)
)

// subnet has the broadcast groups of the default partition and of 0x8001, at
// 0xC000 and 0xC001.
func subnet(t *testing.T, mlids int) *SA {
	t.Helper()
	s := New(Options{MLIDs: mlids})
	for _, guid := range []uint64{port1, port2, port3} {
		s.SetPort(Port{GUID: guid, MTU: MTU4096, Rate: Rate100Gbps, PKeys: []uint16{0xffff, 0x8001}})
	}
	s.SetPort(Port{GUID: slow, MTU: MTU2048, Rate: Rate10Gbps, PKeys: []uint16{0xffff, 0x8001}})
	s.SetPort(Port{GUID: port5, MTU: MTU4096, Rate: Rate100Gbps, PKeys: []uint16{0x7fff}})
	for i, pkey := range []uint16{0xffff, 0x8001} {
		g, err := s.Precreate(Preconfigured{PKey: pkey})
		if err != nil {
			t.Fatal(err)
		}
		if want := FirstMLID + uint16(i); g.MLID != want {
			t.Fatalf("broadcast group %v has MLID %#x, not %#x", g.MGID, g.MLID, want)
		}
	}
	return s
}

// udp is a group as rdma_cm's port space UDP makes it, which isn't IPoIB's.
func udp(last string) netip.Addr { return netip.MustParseAddr("ff12:4001:ffff::" + last) }

// join is the request with which the kernel joins a group, creating it.
func join(s *SA, guid uint64, mgid netip.Addr, state JoinState) Request {
	return Request{Requester: guid, Mask: MaskCreate, Record: MCMemberRecord{
		MGID: mgid, PortGID: s.PortGID(guid), QKey: 0x01234567, PKey: 0xffff, JoinState: state,
	}}
}

// with is the request changed.
func with(r Request, change func(*Request)) Request {
	change(&r)
	return r
}

func mustSet(t *testing.T, s *SA, r Request) MCMemberRecord {
	t.Helper()
	rec, err := s.Set(r)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func mustDelete(t *testing.T, s *SA, r Request) MCMemberRecord {
	t.Helper()
	rec, err := s.Delete(r)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func members(s *SA, mgid netip.Addr) map[uint64]JoinState {
	for _, g := range s.Groups() {
		if g.MGID == mgid {
			return g.Members
		}
	}
	return nil
}

func TestCreateAndJoin(t *testing.T) {
	s := subnet(t, 0)
	got := mustSet(t, s, join(s, port1, udp("f01:203"), FullMember))
	want := MCMemberRecord{
		MGID: udp("f01:203"), PortGID: netip.MustParseAddr("fe80::1001"), QKey: 0x01234567, MLID: 0xC002,
		MTUSelector: Exactly, MTU: MTU4096, PKey: 0xffff, RateSelector: Exactly, Rate: Rate100Gbps,
		PacketLifeTimeSelector: Exactly, JoinState: FullMember,
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(sameAddr)); diff != "" {
		t.Errorf("the creator's answer: (-want +got)\n%s", diff)
	}
	// Another port needs no more than MGID, PortGID, JoinState, and is told the rest.
	want.PortGID, want.JoinState = netip.MustParseAddr("fe80::1002"), SendOnlyNonMember
	got = mustSet(t, s, with(join(s, port2, udp("f01:203"), SendOnlyNonMember), func(r *Request) {
		r.Mask, r.Record.QKey, r.Record.PKey = MaskJoin, 0, 0
	}))
	if diff := cmp.Diff(want, got, cmp.Comparer(sameAddr)); diff != "" {
		t.Errorf("the second port's answer: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[uint64]JoinState{port1: FullMember, port2: SendOnlyNonMember}, members(s, udp("f01:203"))); diff != "" {
		t.Errorf("members: (-want +got)\n%s", diff)
	}
}

func sameAddr(a, b netip.Addr) bool { return a == b }

func TestMLIDs(t *testing.T) {
	s := subnet(t, 4) // two are the broadcast groups'
	a := mustSet(t, s, join(s, port1, udp("a"), FullMember))
	b := mustSet(t, s, join(s, port1, udp("b"), FullMember))
	if a.MLID != 0xC002 || b.MLID != 0xC003 {
		t.Errorf("MLIDs %#x, %#x, not c002, c003", a.MLID, b.MLID)
	}
	refused(t, s.Set, join(s, port1, udp("c"), FullMember), StatusNoResources, "1B19")
	if members(s, udp("c")) != nil {
		t.Error("the group that was refused exists")
	}
	// The lowest free one is taken again at once.
	mustDelete(t, s, join(s, port1, udp("a"), FullMember))
	if c := mustSet(t, s, join(s, port1, udp("c"), FullMember)); c.MLID != 0xC002 {
		t.Errorf("MLID %#x, not the one that was given back", c.MLID)
	}
	// A requested one is given if it is free and the subnet has it.
	s = subnet(t, 16)
	for _, v := range []struct{ requested, want uint16 }{
		{0xC00F, 0xC00F}, {0xC00F, 0xC002}, {0xC010, 0xC003}, {0x0001, 0xC004}, {0xFFFF, 0xC005},
	} {
		got := mustSet(t, s, with(join(s, port1, netip.Addr{}, FullMember), func(r *Request) { r.Record.MLID = v.requested }))
		if got.MLID != v.want {
			t.Errorf("MLID %#x requested: got %#x, not %#x", v.requested, got.MLID, v.want)
		}
	}
}

// refused checks an answer's status, and under which number OpenSM logs it.
func refused(t *testing.T, method func(Request) (MCMemberRecord, error), r Request, status Status, code string) {
	t.Helper()
	rec, err := method(r)
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("answer %+v, error %v: want status %#04x", rec, err, uint16(status))
		return
	}
	if e.Status != status || e.Code != code {
		t.Errorf("%v: want status %#04x, code %q", e, uint16(status), code)
	}
}
