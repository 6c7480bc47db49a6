//go:build opensm

package opensm

import (
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// mtus: each selector with each value, to create and to join.
func mtus(p *play) {
	p.accepted(p.set("b", udp(9), sa.FullMember, mtu(sa.Exactly, sa.MTU1024)))
	for selector := sa.GreaterThan; selector <= sa.Largest; selector++ {
		for value := range sa.MTU(8) {
			p.createAndLeave("a", mtu(selector, value))
			p.createAndLeave("a", mtu(selector, value), without(sa.MaskMTU))
			p.createAndLeave("a", mtu(selector, value), without(sa.MaskMTUSelector))
			p.set("a", udp(9), sa.FullMember, mtu(selector, value))
			p.set("a", udp(9), sa.FullMember, mtu(selector, value), without(sa.MaskMTU))
		}
	}
	p.refused(p.set("a", udp(1), sa.FullMember, mtu(sa.Exactly, sa.MTU4096)), sa.StatusRequestInvalid, "1B12")
	p.refused(p.set("a", udp(1), sa.FullMember, mtu(sa.GreaterThan, sa.MTU2048)), sa.StatusRequestInvalid, "1B26")
	p.refused(p.set("a", udp(1), sa.FullMember, mtu(sa.Exactly, 6)), sa.StatusRequestInvalid, "")
}

// createAndLeave asks for a group, and leaves it if it came about.
func (p *play) createAndLeave(node string, changes ...change) {
	p.t.Helper()
	if p.set(node, udp(1), sa.FullMember, changes...).Status == 0 {
		p.accepted(p.delete(node, udp(1), sa.FullMember))
	}
}

// rates: so too, on a fast and a slow port; and who may join whose group.
func rates(p *play) {
	p.accepted(p.set("b", udp(9), sa.FullMember, rate(sa.Exactly, sa.Rate10Gbps)))
	for selector := sa.GreaterThan; selector <= sa.Largest; selector++ {
		for value := range sa.Rate(27) {
			p.createAndLeave("a", rate(selector, value))
			p.createAndLeave("slow", rate(selector, value))
			p.createAndLeave("mid", rate(selector, value), without(sa.MaskRate))
			p.set("a", udp(9), sa.FullMember, rate(selector, value))
			p.set("a", udp(9), sa.FullMember, rate(selector, value), without(sa.MaskRate))
		}
	}
	// The creator's port decides: whoever is slower stays outside.
	fast, medium, slow := udp(1), udp(2), udp(3)
	p.accepted(p.set("a", fast, sa.FullMember))
	p.accepted(p.set("mid", medium, sa.FullMember))
	p.accepted(p.set("slow", slow, sa.FullMember))
	p.refused(p.set("slow", fast, sa.FullMember), sa.StatusRequestInvalid, "1B12")
	p.refused(p.set("mid", fast, sa.SendOnlyNonMember), sa.StatusRequestInvalid, "1B12")
	p.refused(p.set("slow", medium, sa.FullMember), sa.StatusRequestInvalid, "1B12")
	p.accepted(p.set("a", medium, sa.FullMember))
	p.accepted(p.set("a", slow, sa.FullMember))
}

func mgids(p *play) {
	for _, v := range []struct{ mgid, code string }{
		{"fe80::1", "1B01"},
		{"2001:db8::1", "1B01"},
		{"ff12:a01b:fe80::1", "1B24"},
		{"ff02:a01b:fe80::1", "1B24"},
		{"ff32:4001:ffff::1", "1B28"},
		{"ff92:4001:ffff::1", "1B28"},
		{"ff15:401b:ffff::1", "1B1B"}, // no broadcast group of that scope
		{"ff12:401b:8002::1", "1B1B"}, // or P_Key
		{"ff12:601b:7fff::1", "1B1B"},
	} {
		p.refused(p.set("a", netip.MustParseAddr(v.mgid), sa.FullMember), sa.StatusRequestInvalid, v.code)
	}
	for _, mgid := range []string{
		"ff10:4001:ffff::1", "ff1f:4001:ffff::1", "ff02::1", "ff00::", "ff12:4001::", "ff0e::ffff:ef01:203",
		"ff11:a01b:fe80::1", "ff15:a01b:fe80::1", "ff18:a01b:fe80::1", "ff1e:a01b:fe80::1",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ff12:401a:ffff::1", "ff12:0:ffff::1",
	} {
		g := netip.MustParseAddr(mgid)
		if p.set("a", g, sa.FullMember).Status == 0 {
			p.members("a", g)
			p.accepted(p.delete("a", g, sa.FullMember))
		}
	}
	// Scope is what the creator sends, the MGID's isn't looked at.
	p.set("a", udp(1), sa.FullMember, scope(0xe))
	p.set("b", udp(1), sa.FullMember, scope(5))
	// A group that exists is joined whatever its MGID: the broadcast group's.
	p.set("a", netip.MustParseAddr("ff12:401b:ffff::ffff:ffff"), sa.FullMember, only)
}

// mgidZero lets the subnet manager choose.
func mgidZero(p *play) {
	zero := netip.IPv6Unspecified()
	for _, changes := range [][]change{
		nil,
		{scope(2)}, {scope(5)}, {scope(0xe)}, {scope(0)}, {scope(0xf)},
		{func(r *sa.Request) { r.Record.Scope = 5 }}, // not in the mask
		{mtu(sa.Exactly, sa.MTU1024), rate(sa.Exactly, sa.Rate5Gbps)},
	} {
		rec := p.accepted(p.set("a", zero, sa.FullMember, changes...))
		if rec.MGID.IsUnspecified() {
			p.t.Errorf("the subnet manager chose %v", rec.MGID)
		}
		p.set("b", rec.MGID, sa.FullMember, only)
		p.members("b", rec.MGID)
	}
	p.refused(p.set("a", zero, sa.FullMember, without(sa.MaskQKey)), sa.StatusInsufficientComponents, "1B11")
	p.refused(p.set("a", zero, sa.FullMember, without(sa.MaskMGID)), sa.StatusInsufficientComponents, "1B18")
	p.refused(p.set("a", zero, sa.NonMember), sa.StatusRequestInvalid, "1B10")
	p.refused(p.set("a", zero, sa.FullMember, mtu(sa.GreaterThan, sa.MTU4096)), sa.StatusRequestInvalid, "1B26")
	// That one cost an MGID of the counter.
	p.accepted(p.set("a", zero, sa.FullMember))
	p.refused(p.delete("a", zero, sa.FullMember), sa.StatusRequestInvalid, "")
}

// ipoibGroups: their MGIDs are like their broadcast group, and that stays.
func ipoibGroups(p *play) {
	broadcast := netip.MustParseAddr("ff12:401b:ffff::ffff:ffff")
	other := netip.MustParseAddr("ff12:401b:ffff::1")
	v6 := netip.MustParseAddr("ff12:601b:ffff::1")
	p.refused(p.set("a", other, sa.FullMember), sa.StatusRequestInvalid, "1B30")
	for _, g := range []netip.Addr{other, v6} {
		p.refused(p.set("a", g, sa.FullMember, qkey(0xb1b), pkey(0x8001)), sa.StatusRequestInvalid, "1B32")
		p.refused(p.set("a", g, sa.FullMember, qkey(0xb1b), func(r *sa.Request) { r.Record.SL = 1 }), sa.StatusRequestInvalid, "1B34")
		p.accepted(p.set("a", g, sa.FullMember, qkey(0xb1b)))
		p.members("a", g)
	}
	p.set("a", netip.MustParseAddr("ff12:401b:ffff::2"), sa.FullMember, qkey(0xb1b), pkey(0x7fff))
	p.set("a", netip.MustParseAddr("ff02:401b:ffff::2"), sa.FullMember, qkey(0xb1b))

	p.members("a", broadcast)
	for _, node := range []string{"a", "b", "mid"} {
		p.accepted(p.set(node, broadcast, sa.FullMember, only))
	}
	p.refused(p.set("slow", broadcast, sa.FullMember, only), sa.StatusRequestInvalid, "1B12")
	p.refused(p.set("c", broadcast, sa.FullMember), sa.StatusRequestInvalid, "1B30")
	p.accepted(p.set("c", broadcast, sa.SendOnlyNonMember, only))
	for _, node := range []string{"a", "b", "mid"} {
		p.accepted(p.delete(node, broadcast, sa.FullMember))
	}
	p.members("a", broadcast) // c is no member any more, the group is there
	p.refused(p.delete("c", broadcast, sa.SendOnlyNonMember), sa.StatusRequestInvalid, "1B25")
	// Without full members from the beginning, one stays.
	p.accepted(p.set("c", broadcast, sa.SendOnlyNonMember, only))
	p.members("a", broadcast)
	p.accepted(p.delete("c", broadcast, sa.SendOnlyNonMember))
	// As the kernel joins it: with the values of the port's choice.
	p.accepted(p.set("a", broadcast, sa.FullMember, qkey(0xb1b), mtu(sa.GreaterThan, sa.MTU256), rate(sa.GreaterThan, sa.Rate2_5Gbps)))
	p.set("a", broadcast, sa.FullMember, qkey(0xb1b), mtu(sa.GreaterThan, sa.MTU2048))
}

func partitions(p *play) {
	blue := netip.MustParseAddr("ff12:4001:8001::1")
	p.refused(p.set("mid", blue, sa.FullMember, pkey(0x8001)), sa.StatusRequestInvalid, "1B14")
	p.accepted(p.set("c", blue, sa.FullMember, pkey(0x8001)))
	p.refused(p.set("slow", blue, sa.FullMember, only, pkey(0x8001)), sa.StatusRequestInvalid, "1B12")
	p.refused(p.set("sm", blue, sa.FullMember, only), sa.StatusRequestInvalid, "1B14")
	p.accepted(p.set("b", blue, sa.FullMember, pkey(0x0001))) // limited
	p.accepted(p.set("a", blue, sa.FullMember, pkey(0x8001)))
	// Whose P_Keys lack the group's, sees none.
	for _, node := range []string{"a", "b", "sm", "mid"} {
		p.members(node, blue)
	}
	// A group with a limited P_Key.
	limited := netip.MustParseAddr("ff12:4001:1::1")
	p.accepted(p.set("a", limited, sa.FullMember, pkey(0x0001)))
	p.refused(p.set("b", limited, sa.FullMember, pkey(0x0001)), sa.StatusRequestInvalid, "1B31")
	p.accepted(p.set("c", limited, sa.FullMember, pkey(0x8001)))
	p.accepted(p.set("b", limited, sa.FullMember, only))
	// No partition has it; no P_Key is it.
	p.refused(p.set("a", udp(1), sa.FullMember, pkey(0x8002)), sa.StatusRequestInvalid, "1B14")
	p.refused(p.set("a", udp(1), sa.FullMember, pkey(0)), sa.StatusRequestInvalid, "")
	p.refused(p.set("a", udp(1), sa.FullMember, pkey(0x8000)), sa.StatusRequestInvalid, "")
	p.accepted(p.set("mid", udp(1), sa.FullMember, pkey(0x7fff)))
	p.set("slow", udp(1), sa.FullMember, pkey(0x7fff))
	p.set("a", udp(1), sa.FullMember, pkey(0x7fff))
}
