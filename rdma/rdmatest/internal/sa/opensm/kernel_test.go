//go:build opensm

package opensm

import (
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// asTheKernelAsks are the requests of IPoIB (ipoib_mcast_join) and rdma_cm
// (cma_join_ib_multicast), and of the kernel's table of groups when it leaves one.
func asTheKernelAsks(p *play) {
	broadcast := netip.MustParseAddr("ff12:401b:ffff::ffff:ffff")
	ofIPoIB := func(r *sa.Request) { r.Mask = sa.MaskJoin | sa.MaskPKey }
	fast, slow := "a", "mid"
	for _, node := range []string{fast, slow} {
		p.accepted(p.set(node, broadcast, sa.FullMember, ofIPoIB))
	}
	// IPoIB's other groups, and rdma_cm's in port space IPOIB, are the broadcast
	// group's in all respects.
	like := p.accepted(p.ask(fast, "get", p.request(fast, broadcast, 0, func(r *sa.Request) { r.Mask = sa.MaskMGID })))
	asBroadcast := func(r *sa.Request) {
		mgid, port, state := r.Record.MGID, r.Record.PortGID, r.Record.JoinState
		r.Record = like
		r.Record.MGID, r.Record.PortGID, r.Record.JoinState, r.Record.MLID = mgid, port, state, 0
		r.Mask |= sa.MaskMTUSelector | sa.MaskMTU | sa.MaskRateSelector | sa.MaskRate | sa.MaskHopLimit
	}
	ipoib := netip.MustParseAddr("ff12:401b:ffff::f01:203")
	for _, node := range []string{fast, slow} {
		rec := p.accepted(p.set(node, ipoib, sa.FullMember, asBroadcast))
		if rec.QKey != 0x0b1b || rec.MTU != sa.MTU2048 || rec.Rate != sa.Rate10Gbps {
			p.t.Errorf("%s: %+v isn't like the broadcast group", node, rec)
		}
	}
	p.accepted(p.set("b", ipoib, sa.SendOnlyFullMember, asBroadcast))
	// Port space UDP leaves MTU and rate to the first port.
	first := udp(0x203)
	if rec := p.accepted(p.set(fast, first, sa.FullMember)); rec.Rate != sa.Rate40Gbps {
		p.t.Errorf("rate %d, want that of the port", rec.Rate)
	}
	p.refused(p.set(slow, first, sa.FullMember), sa.StatusRequestInvalid, "1B12")
	p.accepted(p.delete(fast, first, sa.FullMember, only))
	if rec := p.accepted(p.set(slow, first, sa.FullMember)); rec.Rate != sa.Rate10Gbps {
		p.t.Errorf("rate %d, want that of the port", rec.Rate)
	}
	p.accepted(p.set(fast, first, sa.SendOnlyFullMember))
	p.accepted(p.set(fast, first, sa.FullMember))
	// The kernel leaves the memberships that nobody uses any more, one port
	// having several users: first the one kind, then the other.
	p.accepted(p.delete(fast, first, sa.SendOnlyFullMember, only))
	p.accepted(p.delete(slow, first, sa.FullMember, only))
	p.members(fast, first)
	p.accepted(p.delete(fast, first, sa.FullMember, only))
	p.members(fast, first)
}
