package sa

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeave: port1 joins udp("a") as had and leaves as left, beside port2 as
// beside. gone: the group is.
func TestLeave(t *testing.T) {
	const sendOnly, sendOnlyFull = SendOnlyNonMember, SendOnlyFullMember
	for _, v := range []struct {
		name              string
		had, left, beside JoinState
		answer            JoinState
		members           map[uint64]JoinState // nil: no group
	}{
		{"the last one", FullMember, FullMember, 0, 0, nil},
		{"one of two", FullMember, FullMember, FullMember, 0, map[uint64]JoinState{port2: FullMember}},
		{"senders go with the last full member", FullMember, FullMember, sendOnly, 0, nil},
		{"a full sender keeps the group", FullMember, FullMember, sendOnlyFull, 0, map[uint64]JoinState{port2: sendOnlyFull}},
		{"half a member stays", FullMember | NonMember, FullMember, FullMember, NonMember, map[uint64]JoinState{port1: NonMember, port2: FullMember}},
		{"but not in a group that goes", FullMember | NonMember, FullMember, 0, 0, nil},
		{"where OpenSM answers all the same", sendOnlyFull | NonMember, sendOnlyFull, 0, NonMember, nil},
		{"full beside sending", FullMember | sendOnly, sendOnly, 0, FullMember, map[uint64]JoinState{port1: FullMember}},
		{"both kinds of full, one left", FullMember | sendOnlyFull, sendOnlyFull, 0, FullMember, map[uint64]JoinState{port1: FullMember}},
		{"both kinds of full, with another", FullMember | sendOnlyFull, FullMember, FullMember, sendOnlyFull, map[uint64]JoinState{port1: sendOnlyFull, port2: FullMember}},
		{"leaked", FullMember | sendOnlyFull, FullMember, 0, 0, map[uint64]JoinState{}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := subnet(t, 0)
			mustSet(t, s, join(s, port1, udp("a"), v.had))
			if v.beside != 0 {
				mustSet(t, s, join(s, port2, udp("a"), v.beside))
			}
			if got := mustDelete(t, s, join(s, port1, udp("a"), v.left)); got.JoinState != v.answer {
				t.Errorf("answered JoinState %d, want %d", got.JoinState, v.answer)
			}
			if diff := cmp.Diff(v.members, members(s, udp("a"))); diff != "" {
				t.Errorf("members: (-want +got)\n%s", diff)
			}
		})
	}
}

// TestJoinAgain: a port counts once, however often it joins.
func TestJoinAgain(t *testing.T) {
	s := subnet(t, 0)
	for range 3 {
		mustSet(t, s, join(s, port1, udp("a"), FullMember))
	}
	mustDelete(t, s, join(s, port1, udp("a"), FullMember))
	if got := members(s, udp("a")); got != nil {
		t.Errorf("members %v, want no group", got)
	}
}

func TestLeaveRefused(t *testing.T) {
	s := subnet(t, 0)
	mustSet(t, s, join(s, port1, udp("a"), FullMember))
	for _, v := range []struct {
		name   string
		r      Request
		status Status
		code   string
	}{
		{"no such group", join(s, port1, udp("b"), FullMember), StatusRequestInvalid, ""},
		{"not a member", join(s, port2, udp("a"), FullMember), StatusRequestInvalid, "1B25"},
		{"another membership", join(s, port1, udp("a"), NonMember), StatusRequestInvalid, "1B25"},
		{"one more membership", join(s, port1, udp("a"), FullMember|NonMember), StatusRequestInvalid, "1B25"},
		{"no membership", join(s, port1, udp("a"), 0), StatusRequestInvalid, "1B25"},
		{"another's", with(join(s, port1, udp("a"), FullMember), func(r *Request) { r.Requester = port2 }), StatusRequestInvalid, "1B25"},
		{"no JoinState component", with(join(s, port1, udp("a"), FullMember), without(MaskJoinState)), StatusInsufficientComponents, "1B20"},
		{"another subnet's", with(join(s, port1, udp("a"), FullMember), func(r *Request) { r.Record.PortGID = addr("fec0::1001") }), StatusInvalidGID, "1B41"},
	} {
		t.Run(v.name, func(t *testing.T) { refused(t, s.Delete, v.r, v.status, v.code) })
	}
	if diff := cmp.Diff(map[uint64]JoinState{port1: FullMember}, members(s, udp("a"))); diff != "" {
		t.Errorf("members: (-want +got)\n%s", diff)
	}
}

func TestWellKnownGroupStays(t *testing.T) {
	s := subnet(t, 0)
	broadcast := addr("ff12:401b:ffff::ffff:ffff")
	onlyJoin := func(r *Request) { r.Mask = MaskJoin }
	got := mustSet(t, s, with(join(s, slow, broadcast, FullMember), onlyJoin))
	if got.QKey != 0x0b1b || got.MLID != 0xC000 || got.MTU != MTU2048 || got.Rate != Rate10Gbps {
		t.Errorf("the broadcast group is %+v", got)
	}
	mustSet(t, s, with(join(s, port2, broadcast, SendOnlyNonMember), onlyJoin))
	mustDelete(t, s, join(s, slow, broadcast, FullMember))
	if got := members(s, broadcast); got == nil || len(got) != 0 {
		t.Errorf("members %v, want the group without any", got)
	}
}

func TestPortGone(t *testing.T) {
	s := subnet(t, 0)
	mustSet(t, s, join(s, port1, udp("a"), FullMember))
	mustSet(t, s, join(s, port2, udp("a"), SendOnlyNonMember))
	mustSet(t, s, join(s, port1, udp("b"), FullMember|SendOnlyFullMember))
	mustSet(t, s, join(s, port2, udp("b"), FullMember))
	s.RemovePort(port1)
	if got := members(s, udp("a")); got != nil {
		t.Errorf("the group whose full member went has members %v", got)
	}
	if diff := cmp.Diff(map[uint64]JoinState{port2: FullMember}, members(s, udp("b"))); diff != "" {
		t.Errorf("members: (-want +got)\n%s", diff)
	}
	refused(t, s.Set, with(join(s, port2, udp("b"), FullMember), func(r *Request) { r.Record.PortGID = s.PortGID(port1) }), StatusRequestInvalid, "")
}

func TestRestart(t *testing.T) {
	s := subnet(t, 0)
	for _, last := range []string{"a", "b"} {
		mustSet(t, s, join(s, port1, udp(last), FullMember))
	}
	broadcast := with(join(s, port1, addr("ff12:401b:8001::ffff:ffff"), FullMember), func(r *Request) { r.Mask = MaskJoin })
	before := mustSet(t, s, broadcast)
	s.Restart()
	if got := len(s.Groups()); got != 2 {
		t.Errorf("%d groups after a restart, want the 2 preconfigured ones", got)
	}
	refused(t, s.Delete, broadcast, StatusRequestInvalid, "1B25")
	// b has the MLID now that a had: an application that still uses its old one
	// is in the wrong group.
	if got := mustSet(t, s, join(s, port1, udp("b"), FullMember)); got.MLID != 0xC002 {
		t.Errorf("MLID %#x, want c002", got.MLID)
	}
	if after := mustSet(t, s, broadcast); after.MLID != before.MLID {
		t.Errorf("the broadcast group's MLID is %#x, was %#x", after.MLID, before.MLID)
	}
}

func TestQueries(t *testing.T) {
	s := subnet(t, 0)
	mustSet(t, s, join(s, port1, udp("a"), FullMember))
	mustSet(t, s, with(join(s, port2, udp("a"), SendOnlyNonMember), func(r *Request) { r.Requester = port1 }))
	query := func(requester uint64, mask Mask, trusted bool) Request {
		r := join(s, port2, udp("a"), SendOnlyNonMember)
		r.Requester, r.Mask, r.Trusted = requester, mask, trusted
		return r
	}
	for _, v := range []struct {
		name    string
		r       Request
		members []uint64 // by PortGID, 0 for ::
	}{
		{"the group", query(port3, MaskMGID, false), []uint64{0}},
		{"its members", query(port3, MaskMGID, true), []uint64{port1, port2}},
		{"one of them", query(port3, MaskMGID|MaskPortGID, true), []uint64{port2}},
		{"one of them, not trusted", query(port3, MaskMGID|MaskPortGID, false), []uint64{0}},
		{"by state", query(port3, MaskMGID|MaskJoinState, true), []uint64{port2}},
		{"by the creator's state", query(port3, MaskMGID|MaskJoinState, false), nil},
		{"by it, and it is that", with(query(port3, MaskMGID|MaskJoinState, false), func(r *Request) { r.Record.JoinState = FullMember }), []uint64{0}},
		{"all groups", query(port3, 0, false), []uint64{0, 0, 0}},
		{"all groups of the partition", query(port5, 0, false), []uint64{0, 0}},
	} {
		t.Run(v.name, func(t *testing.T) {
			all, err := s.GetTable(v.r)
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for _, rec := range all {
				got = append(got, guidOf(rec.PortGID))
				if rec.ProxyJoin != (rec.PortGID == s.PortGID(port2)) {
					t.Errorf("%v: ProxyJoin %v", rec.PortGID, rec.ProxyJoin)
				}
			}
			if diff := cmp.Diff(v.members, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	refused(t, s.Get, query(port3, 0, false), StatusTooManyRecords, "4C05")
	refused(t, s.Get, with(query(port3, MaskMGID, false), mgid("ff12::1")), StatusNoRecords, "")
	got, err := s.Get(query(port3, MaskMGID, false))
	if err != nil || got.MTU != MTU4096 || got.JoinState != 0 {
		t.Errorf("the group: %+v, %v", got, err)
	}
}
