//go:build opensm

package opensm

import (
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// otherPorts are requests that one port makes for another, and for none.
func otherPorts(p *play) {
	g := udp(1)
	for method, code := range map[string]string{"set": "1B40", "delete": "1B41"} {
		p.refused(p.ask("a", method, p.request("a", g, sa.FullMember, portGID("fe80:0:0:1::10:3"))), sa.StatusInvalidGID, code)
		p.refused(p.ask("a", method, p.request("a", g, sa.FullMember, portGID("::10:3"))), sa.StatusInvalidGID, code)
	}
	p.refused(p.set("a", g, sa.FullMember, portGID("fe80::99")), sa.StatusRequestInvalid, "")
	p.refused(p.set("a", g, sa.FullMember, portGID("fe80::10:2")), sa.StatusRequestInvalid, "") // a node's GUID

	// a creates and joins for b: a proxy join, which a and others undo.
	p.accepted(p.ask("a", "set", p.request("b", g, sa.FullMember)))
	p.members("a", g)
	p.accepted(p.ask("b", "set", p.request("b", g, sa.NonMember)))
	p.accepted(p.ask("c", "delete", p.request("b", g, sa.NonMember)))
	p.members("a", g)
	p.accepted(p.set("a", g, sa.FullMember))
	p.refused(p.ask("b", "delete", p.request("a", g, sa.FullMember)), sa.StatusRequestInvalid, "1B25")
	p.refused(p.ask("b", "set", p.request("a", g, sa.NonMember)), sa.StatusRequestInvalid, "1B13")
	// a takes its own part over once it is its own; c is limited, as mid is.
	p.refused(p.ask("mid", "set", p.request("c", g, sa.FullMember)), sa.StatusRequestInvalid, "")
	p.accepted(p.ask("a", "set", p.request("c", g, sa.FullMember)))
	p.accepted(p.ask("mid", "delete", p.request("c", g, sa.FullMember)))
	// By proxy in a partition that isn't the requester's.
	blue := netip.MustParseAddr("ff12:4001:8001::1")
	p.accepted(p.ask("a", "set", p.request("c", blue, sa.FullMember, pkey(0x8001))))
	p.refused(p.ask("mid", "delete", p.request("c", blue, sa.FullMember)), sa.StatusRequestInvalid, "1B25")
	p.accepted(p.ask("sm", "set", p.request("a", blue, sa.FullMember, only))) // not a member of it itself
	p.refused(p.ask("sm", "set", p.request("a", blue, sa.NonMember, only)), sa.StatusRequestInvalid, "1B13")
	p.members("a", blue)
}

// allMLIDs gives out all that the subnet has.
func allMLIDs(p *play) {
	used := len(p.simulated.Groups())
	for n := used; n < mlids; n++ {
		rec := p.accepted(p.set("a", udp(n), sa.FullMember))
		if want := sa.FirstMLID + uint16(n); rec.MLID != want {
			p.t.Errorf("group %d has MLID %#x, want %#x", n, rec.MLID, want)
		}
	}
	p.refused(p.set("a", udp(100), sa.FullMember), sa.StatusNoResources, "1B19")
	p.refused(p.set("a", netip.Addr{}, sa.FullMember), sa.StatusNoResources, "1B19")
	// Those that come back go to the next, lowest first.
	for _, n := range []int{20, 7, 13} {
		p.accepted(p.delete("a", udp(n), sa.FullMember))
	}
	for i, want := range []uint16{0xc007, 0xc00d, 0xc014} {
		if rec := p.accepted(p.set("b", udp(200+i), sa.FullMember)); rec.MLID != want {
			p.t.Errorf("MLID %#x, want %#x", rec.MLID, want)
		}
	}
	p.refused(p.set("a", udp(100), sa.FullMember), sa.StatusNoResources, "1B19")
	// A failed creation gives its MLID back.
	p.accepted(p.delete("a", udp(5), sa.FullMember))
	for range 3 {
		p.refused(p.set("a", udp(100), sa.FullMember, mtu(sa.Exactly, sa.MTU4096)), sa.StatusRequestInvalid, "1B12")
	}
	p.accepted(p.set("a", udp(101), sa.FullMember))
	p.tidy()
	// Requested ones: free, taken, beyond the switch's table, no MLID.
	for i, v := range []uint16{0xc010, 0xc010, 0xc01f, 0xc020, 0xffff, 0xfffe, 0xbfff, 1, 0xc000} {
		p.set("a", udp(i), sa.FullMember, mlid(v))
		p.set("a", udp(i), sa.NonMember, mlid(v), func(r *sa.Request) { r.Mask |= sa.MaskMLID })
	}
}

func queries(p *play) {
	get := func(node string, m sa.Mask, changes ...change) {
		for _, method := range []string{"get", "table"} {
			for _, trust := range []change{func(*sa.Request) {}, trusted} {
				p.ask(node, method, p.request(node, udp(1), 0, append(changes, trust, func(r *sa.Request) { r.Mask = m })...))
			}
		}
	}
	get("a", sa.MaskMGID)
	get("a", 0) // the two broadcast groups
	get("mid", 0)
	p.accepted(p.set("a", udp(1), sa.FullMember, mtu(sa.Exactly, sa.MTU1024)))
	p.accepted(p.set("b", udp(1), sa.SendOnlyNonMember))
	p.accepted(p.ask("a", "set", p.request("c", udp(1), sa.NonMember)))
	mlidOf := p.accepted(p.set("sm", udp(2), sa.FullMember)).MLID
	get("a", 0)
	get("a", sa.MaskMLID, mlid(mlidOf))
	get("a", sa.MaskMLID, mlid(0xc01e))
	for _, node := range []string{"a", "b", "sm", "slow"} {
		get(node, sa.MaskMGID)
		get(node, sa.MaskMGID|sa.MaskPortGID)
		get(node, sa.MaskPortGID)
	}
	for state := range sa.JoinState(16) {
		in := func(r *sa.Request) { r.Record.JoinState = state }
		get("a", sa.MaskMGID|sa.MaskJoinState, in)
		get("a", sa.MaskMGID|sa.MaskPortGID|sa.MaskJoinState, in)
	}
	for selector := sa.GreaterThan; selector <= sa.Largest; selector++ {
		get("a", sa.MaskMGID|sa.MaskMTUSelector, mtu(selector, sa.MTU1024))
		get("a", sa.MaskMGID|sa.MaskMTUSelector, mtu(selector, sa.MTU512))
		get("a", sa.MaskMGID|sa.MaskRateSelector, rate(selector, sa.Rate30Gbps))
	}
	get("a", sa.MaskMGID|sa.MaskQKey, qkey(0x01234567))
	get("a", sa.MaskQKey, qkey(0xb1b))
	get("a", sa.MaskPKey, pkey(0x8001))
	get("a", sa.MaskPKey, pkey(0x0001))
	get("a", sa.MaskPKey, pkey(0))
	get("a", sa.MaskScope, scope(2))
	get("a", sa.MaskMGID|sa.MaskScope, scope(2))
	get("a", sa.MaskMGID|sa.MaskProxyJoin)
	get("a", sa.MaskMGID|sa.MaskProxyJoin, func(r *sa.Request) { r.Record.ProxyJoin = true })
}
