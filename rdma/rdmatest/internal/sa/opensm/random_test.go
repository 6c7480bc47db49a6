//go:build opensm

package opensm

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// random makes requests that are near enough to right ones to get far.
type random struct {
	*rand.Rand
	p     *play
	nodes []string
}

// randomRequests plays a sequence that nobody thought of, the same each time
// unless OPENSM_SEED is a number for another one.
func randomRequests(p *play) {
	const many = 3000
	seed := uint64(1)
	if text := os.Getenv("OPENSM_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			p.t.Fatal(err)
		}
	}
	r := random{rand.New(rand.NewPCG(seed, 0)), p, p.nodes()}
	for range many {
		node, method, request := r.request()
		p.ask(node, method, request)
	}
	for _, status := range []sa.Status{
		0, sa.StatusNoResources, sa.StatusRequestInvalid, sa.StatusNoRecords,
		sa.StatusTooManyRecords, sa.StatusInvalidGID, sa.StatusInsufficientComponents,
	} {
		if p.cover[status] == 0 {
			p.t.Errorf("no answer had status %#04x", uint16(status))
		}
	}
}

// seldom is true once in n times.
func (r random) seldom(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r random, of ...T) T { return of[r.IntN(len(of))] }

func (r random) request() (node, method string, request sa.Request) {
	node = pick(r, r.nodes...)
	method = pick(r, "set", "set", "set", "set", "delete", "delete", "get", "table")
	subject := node
	if r.seldom(12) {
		subject = pick(r, r.nodes...)
	}
	request = r.p.request(subject, r.mgid(), r.state(), r.changes()...)
	switch {
	case method == "get" || method == "table":
		request.Mask = sa.MaskMGID & sa.Mask(r.Uint64()) // often any group
		request.Mask |= sa.Mask(r.Uint64()&r.Uint64()&r.Uint64()) & (sa.MaskProxyJoin<<1 - 1)
		request.Trusted = r.seldom(2)
	case r.seldom(15):
		request.Mask ^= 1 << r.IntN(18)
	case r.seldom(3):
		request.Mask = sa.MaskJoin
	}
	return node, method, request
}

func (r random) mgid() netip.Addr {
	switch r.IntN(12) {
	case 0:
		return netip.IPv6Unspecified()
	case 1:
		return pick(r, netip.MustParseAddr("ff12:401b:ffff::ffff:ffff"), netip.MustParseAddr("ff12:401b:8001::ffff:ffff"))
	case 2:
		return netip.AddrFrom16([16]byte{
			0xff, byte(r.IntN(256)), pick[byte](r, 0x40, 0x60, 0xa0), pick[byte](r, 0x01, 0x1b),
			pick[byte](r, 0xff, 0x80), pick[byte](r, 0xff, 1), 15: byte(r.IntN(4)),
		})
	default:
		return udp(r.IntN(30))
	}
}

func (r random) state() sa.JoinState {
	if r.seldom(3) {
		return sa.JoinState(r.IntN(16))
	}
	return pick(r, sa.FullMember, sa.FullMember, sa.FullMember, sa.SendOnlyFullMember, sa.SendOnlyNonMember, sa.NonMember)
}

func (r random) changes() []change {
	var out []change
	some := func(n int, c change) {
		if r.seldom(n) {
			out = append(out, c)
		}
	}
	some(3, mtu(sa.Selector(r.IntN(4)), sa.MTU(r.IntN(6))))
	some(3, rate(sa.Selector(r.IntN(4)), sa.Rate(r.IntN(24))))
	some(12, qkey(pick[uint32](r, 0xb1b, 1)))
	some(8, pkey(pick[uint16](r, 0x8001, 0x0001, 0x7fff, 0x8000, 0x8002)))
	some(6, mlid(sa.FirstMLID+uint16(r.IntN(40))))
	some(8, scope(uint8(r.IntN(16))))
	some(30, portGID(pick(r, "fe80::99", "fec0::10:3")))
	some(20, func(q *sa.Request) { q.Record.TClass = 1 })
	some(20, func(q *sa.Request) { q.Record.SL = 1 })
	some(20, func(q *sa.Request) { q.Record.FlowLabel = 1 })
	some(20, func(q *sa.Request) { q.Record.HopLimit = 1; q.Mask |= sa.MaskHopLimit })
	some(20, func(q *sa.Request) { q.Record.ProxyJoin = true; q.Mask |= sa.MaskProxyJoin })
	return out
}
