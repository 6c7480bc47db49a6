//go:build opensm

package opensm

import (
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// accepted fails the scenario where an answer is a refusal.
func (p *play) accepted(a answer) sa.MCMemberRecord {
	p.t.Helper()
	if a.Status != 0 || len(a.Records) != 1 {
		p.t.Fatalf("status %#04x, %d records, want one record", uint16(a.Status), len(a.Records))
	}
	return a.Records[0]
}

// refused fails the scenario where an answer isn't the refusal expected.
func (p *play) refused(a answer, status sa.Status, code string) {
	p.t.Helper()
	if a.Status != status || a.Code != code {
		p.t.Errorf("status %#04x, ERR %q, want %#04x, ERR %q", uint16(a.Status), a.Code, uint16(status), code)
	}
}

func createAndJoin(p *play) {
	g := udp(1)
	created := p.accepted(p.set("a", g, sa.FullMember))
	joined := p.accepted(p.set("b", g, sa.FullMember, only))
	if created.MLID < sa.FirstMLID || joined.MLID != created.MLID || joined.QKey != created.QKey {
		p.t.Errorf("created %+v, joined %+v", created, joined)
	}
	p.set("a", g, sa.FullMember) // again
	p.set("a", g, sa.NonMember)  // both now
	p.members("a", g)
	p.members("slow", g)
	// What the creator sends stands in the record, given by the mask or not.
	p.set("c", udp(2), sa.FullMember, func(r *sa.Request) {
		r.Record.TClass, r.Record.SL, r.Record.FlowLabel, r.Record.HopLimit = 7, 3, 0xabcde, 42
		r.Record.Scope, r.Record.PacketLifeTime, r.Record.ProxyJoin = 0xe, 17, true
	})
	p.members("c", udp(2))
	p.set("a", udp(2), sa.FullMember, only)
}

func sendOnly(p *play) {
	p.refused(p.set("a", udp(1), sa.NonMember), sa.StatusRequestInvalid, "1B10")
	p.refused(p.set("a", udp(1), sa.SendOnlyNonMember), sa.StatusRequestInvalid, "1B10")
	p.accepted(p.set("a", udp(1), sa.FullMember))
	p.accepted(p.set("b", udp(1), sa.SendOnlyNonMember, only))
	p.accepted(p.set("c", udp(1), sa.SendOnlyFullMember, only))
	p.accepted(p.delete("a", udp(1), sa.FullMember)) // c keeps it alive
	p.members("a", udp(1))
	p.accepted(p.delete("c", udp(1), sa.SendOnlyFullMember))
	p.members("a", udp(1)) // gone, with b's membership
	p.refused(p.delete("b", udp(1), sa.SendOnlyNonMember), sa.StatusRequestInvalid, "")
	p.accepted(p.set("a", udp(2), sa.SendOnlyFullMember))
	p.members("a", udp(2))
}

func leave(p *play) {
	g := udp(1)
	p.refused(p.delete("a", g, sa.FullMember), sa.StatusRequestInvalid, "") // no group
	p.accepted(p.set("a", g, sa.FullMember))
	p.refused(p.delete("b", g, sa.FullMember), sa.StatusRequestInvalid, "1B25") // no member
	p.refused(p.delete("a", g, 0), sa.StatusRequestInvalid, "1B25")
	p.refused(p.delete("a", g, sa.SendOnlyNonMember), sa.StatusRequestInvalid, "1B25")
	p.refused(p.delete("a", g, sa.FullMember|sa.NonMember), sa.StatusRequestInvalid, "1B25")
	// Values that contradict the group don't matter, and are answered as sent.
	p.accepted(p.set("b", g, sa.FullMember))
	p.accepted(p.delete("b", g, sa.FullMember, qkey(1), pkey(0x1234), mtu(sa.LessThan, sa.MTU512), rate(sa.Largest, sa.Rate600Gbps), mlid(0xc123)))
	p.refused(p.delete("a", g, sa.FullMember, mtu(sa.Exactly, 9)), sa.StatusRequestInvalid, "")
	p.refused(p.delete("a", g, sa.FullMember, rate(sa.Exactly, 1)), sa.StatusRequestInvalid, "")
	// One membership after the other.
	p.accepted(p.set("b", g, sa.FullMember|sa.NonMember|sa.SendOnlyNonMember))
	for _, state := range []sa.JoinState{sa.NonMember, sa.FullMember, sa.SendOnlyNonMember} {
		p.accepted(p.delete("b", g, state))
		p.members("a", g)
	}
	// The last full member leaves, non-members go with it.
	p.accepted(p.set("b", g, sa.NonMember))
	p.accepted(p.delete("a", g, sa.FullMember))
	p.refused(p.delete("b", g, sa.NonMember), sa.StatusRequestInvalid, "")
	// It leaves one of its memberships, and was the only full member.
	p.accepted(p.set("a", g, sa.FullMember|sa.NonMember))
	p.accepted(p.delete("a", g, sa.FullMember))
	p.accepted(p.set("a", g, sa.SendOnlyFullMember|sa.NonMember))
	p.accepted(p.delete("a", g, sa.SendOnlyFullMember))
	p.members("a", g)
}

// joinStates joins and leaves with every state after every other, beside
// another full member: OpenSM's arithmetic for who goes.
func joinStates(p *play) {
	g := udp(1)
	p.accepted(p.set("b", g, sa.FullMember))
	p.refused(p.set("a", g, 0), sa.StatusRequestInvalid, "1B12")
	for had := sa.JoinState(1); had < 16; had++ {
		for left := sa.JoinState(1); left < 16; left++ {
			p.accepted(p.set("a", g, had, only))
			if p.delete("a", g, left).Status == 0 {
				p.members("b", g)
			}
			if rest := had &^ left; rest != 0 || had&left != left {
				p.ask("a", "delete", p.request("a", g, p.held("a", g)))
			}
		}
	}
	// And so does a group's creation.
	for state := range sa.JoinState(16) {
		if p.set("a", udp(2), state).Status == 0 {
			p.members("a", udp(2))
			p.accepted(p.delete("a", udp(2), state))
		}
	}
}

// held is what a port holds in the simulated SA.
func (p *play) held(node string, mgid netip.Addr) sa.JoinState {
	for _, g := range p.simulated.Groups() {
		if g.MGID == mgid {
			return g.Members[p.ports[node].GUID]
		}
	}
	return 0
}

func missingComponents(p *play) {
	for bit := sa.MaskMGID; bit <= sa.MaskProxyJoin; bit <<= 1 {
		a := p.set("a", udp(1), sa.FullMember, without(bit))
		switch {
		case sa.MaskJoin&bit != 0:
			p.refused(a, sa.StatusInsufficientComponents, "1B18")
		case sa.MaskCreate&bit != 0:
			p.refused(a, sa.StatusInsufficientComponents, "1B11")
		default:
			p.accepted(a)
			p.accepted(p.delete("a", udp(1), sa.FullMember))
		}
	}
	p.accepted(p.set("b", udp(1), sa.FullMember))
	for bit := sa.MaskMGID; bit <= sa.MaskProxyJoin; bit <<= 1 {
		p.set("a", udp(1), sa.FullMember, without(bit))
		if a := p.delete("a", udp(1), sa.FullMember, without(bit)); sa.MaskJoin&bit != 0 {
			p.refused(a, sa.StatusInsufficientComponents, "1B20")
		}
	}
}

func mismatches(p *play) {
	g := udp(1)
	p.accepted(p.set("a", g, sa.FullMember, func(r *sa.Request) {
		r.Record.TClass, r.Record.SL, r.Record.FlowLabel, r.Record.HopLimit, r.Record.Scope = 1, 1, 1, 1, 2
	}))
	same := func(r *sa.Request) {
		r.Record.TClass, r.Record.SL, r.Record.FlowLabel, r.Record.HopLimit = 1, 1, 1, 1
		r.Mask |= sa.MaskHopLimit
	}
	p.accepted(p.set("b", g, sa.FullMember, same))
	for _, v := range []struct {
		code   string
		change change
	}{
		{"1B30", qkey(0x0b1b)},
		{"1B32", pkey(0x8001)},
		{"1B32", pkey(0x0001)},
		{"", pkey(0)},
		{"", pkey(0x8000)},
		{"1B33", func(r *sa.Request) { r.Record.TClass = 2 }},
		{"1B34", func(r *sa.Request) { r.Record.SL = 2 }},
		{"1B35", func(r *sa.Request) { r.Record.FlowLabel = 2 }},
		{"1B36", func(r *sa.Request) { r.Record.HopLimit = 2 }},
	} {
		p.refused(p.set("c", g, sa.FullMember, same, v.change), sa.StatusRequestInvalid, v.code)
	}
	// Not looked at: scope, lifetime, a requested MLID, the proxy bit.
	p.accepted(p.set("c", g, sa.FullMember, same, scope(5), mlid(0xc00a), func(r *sa.Request) {
		r.Record.PacketLifeTimeSelector, r.Record.PacketLifeTime = sa.LessThan, 1
		r.Record.ProxyJoin = true
		r.Mask |= sa.MaskMLID | sa.MaskPacketLifeTimeSelector | sa.MaskPacketLifeTime | sa.MaskProxyJoin
	}))
	p.members("a", g)
	p.refused(p.delete("b", g, sa.SendOnlyFullMember), sa.StatusRequestInvalid, "1B25")
}
