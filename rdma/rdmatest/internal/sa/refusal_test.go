package sa

import (
	"errors"
	"net/netip"
	"testing"
)

// addr is of the tests' MGIDs.
func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func without(m Mask) func(*Request) { return func(r *Request) { r.Mask &^= m } }

func mtu(s Selector, v MTU) func(*Request) {
	return func(r *Request) {
		r.Mask |= MaskMTU | MaskMTUSelector
		r.Record.MTUSelector, r.Record.MTU = s, v
	}
}

func rate(s Selector, v Rate) func(*Request) {
	return func(r *Request) {
		r.Mask |= MaskRate | MaskRateSelector
		r.Record.RateSelector, r.Record.Rate = s, v
	}
}

func pkey(v uint16) func(*Request) { return func(r *Request) { r.Record.PKey = v } }

func mgid(s string) func(*Request) { return func(r *Request) { r.Record.MGID = addr(s) } }

// TestRefusals has a group to join, udp("a"), that port1 made at 2048 bytes and
// 40 Gbit/s, and port2 asks. The statuses are OpenSM's (test/opensm).
func TestRefusals(t *testing.T) {
	for _, v := range []struct {
		name   string
		change func(*Request)
		status Status
		code   string
	}{
		{"no MGID component", without(MaskMGID), StatusInsufficientComponents, "1B18"},
		{"no PortGID component", without(MaskPortGID), StatusInsufficientComponents, "1B18"},
		{"no JoinState component", without(MaskJoinState), StatusInsufficientComponents, "1B18"},
		{"MTU 0", mtu(Exactly, 0), StatusRequestInvalid, ""},
		{"MTU 6", mtu(GreaterThan, 6), StatusRequestInvalid, ""},
		{"rate 1", rate(Exactly, 1), StatusRequestInvalid, ""},
		{"rate 23", rate(LessThan, 23), StatusRequestInvalid, ""},
		{"another subnet's PortGID", func(r *Request) { r.Record.PortGID = addr("fec0::1002") }, StatusInvalidGID, "1B40"},
		{"no port's GID", func(r *Request) { r.Record.PortGID = addr("fe80::99") }, StatusRequestInvalid, ""},
		{"P_Key 0", pkey(0x8000), StatusRequestInvalid, ""},
		{"Q_Key", func(r *Request) { r.Record.QKey = 1 }, StatusRequestInvalid, "1B30"},
		{"P_Key", pkey(0x8001), StatusRequestInvalid, "1B32"},
		{"traffic class", func(r *Request) { r.Record.TClass = 1 }, StatusRequestInvalid, "1B33"},
		{"SL", func(r *Request) { r.Record.SL = 1 }, StatusRequestInvalid, "1B34"},
		{"flow label", func(r *Request) { r.Record.FlowLabel = 1 }, StatusRequestInvalid, "1B35"},
		{"hop limit", func(r *Request) { r.Record.HopLimit, r.Mask = 1, r.Mask|MaskHopLimit }, StatusRequestInvalid, "1B36"},
		{"exact MTU", mtu(Exactly, MTU1024), StatusRequestInvalid, "1B12"},
		{"larger MTU", mtu(GreaterThan, MTU2048), StatusRequestInvalid, "1B12"},
		{"smaller MTU", mtu(LessThan, MTU2048), StatusRequestInvalid, "1B12"},
		{"exact rate", rate(Exactly, Rate100Gbps), StatusRequestInvalid, "1B12"},
		{"higher rate", rate(GreaterThan, Rate40Gbps), StatusRequestInvalid, "1B12"},
		{"lower rate", rate(LessThan, Rate40Gbps), StatusRequestInvalid, "1B12"},
		{"no JoinState", func(r *Request) { r.Record.JoinState = 0 }, StatusRequestInvalid, "1B12"},
		{"on a slower port", func(r *Request) { r.Requester, r.Record.PortGID = slow, addr("fe80::1004") }, StatusRequestInvalid, "1B12"},
		{"for another member", func(r *Request) { r.Record.PortGID = addr("fe80::1001") }, StatusRequestInvalid, "1B13"},
		{"not in the partition", func(r *Request) {
			r.Record.MGID, r.Mask = addr("ff12:401b:8001::ffff:ffff"), MaskJoin
			r.Requester, r.Record.PortGID = port5, addr("fe80::1005")
		}, StatusRequestInvalid, "1B14"},

		{"new, NonMember", func(r *Request) { r.Record.MGID, r.Record.JoinState = udp("b"), NonMember }, StatusRequestInvalid, "1B10"},
		{"new, SendOnlyNonMember", func(r *Request) { r.Record.MGID, r.Record.JoinState = udp("b"), SendOnlyNonMember }, StatusRequestInvalid, "1B10"},
		{"new, no Q_Key", func(r *Request) { r.Record.MGID, r.Mask = udp("b"), r.Mask&^MaskQKey }, StatusInsufficientComponents, "1B11"},
		{"new, only what a join takes", func(r *Request) { r.Record.MGID, r.Mask = udp("b"), MaskJoin }, StatusInsufficientComponents, "1B11"},
		{"no multicast", mgid("fe80::1"), StatusRequestInvalid, "1B01"},
		{"link-local a01b", mgid("ff12:a01b:fe80::1"), StatusRequestInvalid, "1B24"},
		{"reserved flags", mgid("ff32:4001::1"), StatusRequestInvalid, "1B28"},
		{"IPoIB without broadcast group", mgid("ff15:401b:ffff::1"), StatusRequestInvalid, "1B1B"},
		{"IPoIB with another Q_Key", mgid("ff12:601b:ffff::1"), StatusRequestInvalid, "1B30"},
		{"new, too large an MTU", func(r *Request) { mgid("ff12:4001::b")(r); mtu(GreaterThan, MTU4096)(r) }, StatusRequestInvalid, "1B26"},
		{"new, below the least MTU", func(r *Request) { mgid("ff12:4001::b")(r); mtu(LessThan, MTU256)(r) }, StatusRequestInvalid, "1B26"},
		{"new, too high a rate", func(r *Request) { mgid("ff12:4001::b")(r); rate(GreaterThan, Rate100Gbps)(r) }, StatusRequestInvalid, "1B26"},
		{"new, exactly too high a rate", func(r *Request) { mgid("ff12:4001::b")(r); rate(Exactly, Rate200Gbps)(r) }, StatusRequestInvalid, "1B12"},
		{"new, in no partition of the port's", func(r *Request) { mgid("ff12:4001::b")(r); pkey(0x8002)(r) }, StatusRequestInvalid, "1B14"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := subnet(t, 0)
			mustSet(t, s, with(join(s, port1, udp("a"), FullMember), func(r *Request) {
				mtu(Exactly, MTU2048)(r)
				rate(Exactly, Rate40Gbps)(r)
			}))
			groups := len(s.Groups())
			refused(t, s.Set, with(join(s, port2, udp("a"), FullMember), v.change), v.status, v.code)
			if got := len(s.Groups()); got != groups {
				t.Errorf("%d groups, were %d", got, groups)
			}
			if got := members(s, udp("a")); len(got) != 1 {
				t.Errorf("members %v", got)
			}
		})
	}
}

// TestCreation is whose values a group gets that port1 makes: 4096 bytes and 100
// Gbit/s are the port's.
func TestCreation(t *testing.T) {
	for _, v := range []struct {
		name   string
		change func(*Request)
		mtu    MTU
		rate   Rate
	}{
		{"nothing asked for", func(*Request) {}, MTU4096, Rate100Gbps},
		{"value without selector", func(r *Request) { r.Mask |= MaskMTU | MaskRate }, MTU4096, Rate100Gbps},
		{"exact MTU", mtu(Exactly, MTU512), MTU512, Rate100Gbps},
		{"MTU greater than", mtu(GreaterThan, MTU512), MTU4096, Rate100Gbps},
		{"MTU less than", mtu(LessThan, MTU2048), MTU1024, Rate100Gbps},
		{"largest MTU", mtu(Largest, MTU256), MTU4096, Rate100Gbps},
		{"exact rate", rate(Exactly, Rate2_5Gbps), MTU4096, Rate2_5Gbps},
		{"rate greater than", rate(GreaterThan, Rate40Gbps), MTU4096, Rate100Gbps},
		{"rate less than the port's", rate(LessThan, Rate100Gbps), MTU4096, Rate120Gbps},
		{"rate less than 25", rate(LessThan, Rate25Gbps), MTU4096, Rate30Gbps},
		{"rate less than more than the port's", rate(LessThan, Rate400Gbps), MTU4096, Rate100Gbps},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := subnet(t, 0)
			got := mustSet(t, s, with(join(s, port1, udp("a"), FullMember), v.change))
			if got.MTU != v.mtu || got.Rate != v.rate {
				t.Errorf("MTU %d, rate %d, want %d, %d", got.MTU, got.Rate, v.mtu, v.rate)
			}
		})
	}
}

func TestMGIDZero(t *testing.T) {
	s := subnet(t, 0)
	for _, v := range []struct {
		change func(*Request)
		want   string
	}{
		{func(*Request) {}, "ff12:a01b:fe80::"},
		{func(r *Request) { r.Record.Scope = 5 }, "ff12:a01b:fe80::100:0:0"}, // not in the mask
		{func(r *Request) { r.Record.Scope, r.Mask = 5, r.Mask|MaskScope }, "ff15:a01b:fe80::200:0:0"},
	} {
		got := mustSet(t, s, with(join(s, port1, netip.Addr{}, FullMember), v.change))
		if got.MGID != addr(v.want) {
			t.Errorf("MGID %v, want %v", got.MGID, v.want)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	s := subnet(t, 0)
	r := join(s, port1, udp("a"), FullMember)
	r.Requester = 99
	if _, err := s.Set(r); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("a stranger's request: %v", err)
	}
	if _, err := s.Get(r); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("a stranger's query: %v", err)
	}
}
