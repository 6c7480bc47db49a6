//go:build opensm

package opensm

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// play is one scenario: it puts requests to both and compares the answers.
type play struct {
	*subnet
	t     *testing.T
	asked int
	// cover counts the answers by status, to show that a scenario reaches what
	// it is for.
	cover map[sa.Status]int
}

// oneMAD is how many records an answer has at most: ibsim carries single MADs,
// and OpenSM trims tables to what fits.
const oneMAD = 3

// ask puts a request to both SAs and returns the answer, the same of both.
func (p *play) ask(node, method string, r sa.Request) answer {
	p.t.Helper()
	p.asked++
	r.Requester = p.ports[node].GUID
	line := fmt.Sprintf("request %d, %s: %s", p.asked, node, requestLine(method, r))
	theirs, err := p.clients[node].ask(method, r)
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	theirs.Code = p.code(p.t)
	ours, err := p.simulate(method, r)
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	p.review(method, &theirs)
	if diff := cmp.Diff(theirs, ours, cmp.Comparer(sameAddr), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(answer{})); diff != "" {
		p.t.Errorf("%s\n(-OpenSM +simulated)\n%s", line, diff)
	}
	p.cover[theirs.Status]++
	p.codes[theirs.Code]++
	return theirs
}

func sameAddr(a, b netip.Addr) bool { return a == b }

func (p *play) simulate(method string, r sa.Request) (answer, error) {
	var a answer
	var err error
	one := func(rec sa.MCMemberRecord, err error) ([]sa.MCMemberRecord, error) {
		return []sa.MCMemberRecord{rec}, err
	}
	switch method {
	case "set":
		a.Records, err = one(p.simulated.Set(r))
	case "delete":
		a.Records, err = one(p.simulated.Delete(r))
	case "get":
		a.Records, err = one(p.simulated.Get(r))
	case "table":
		a.Records, err = p.simulated.GetTable(r)
		a.Records = a.Records[:min(len(a.Records), oneMAD)]
	default:
		err = fmt.Errorf("no method is named %s", method)
	}
	if refusal := (*sa.Error)(nil); errors.As(err, &refusal) {
		return answer{Status: refusal.Status, Code: refusal.Code}, nil
	}
	return a, err
}

// tidy takes all members out again, by requests like others.
func (p *play) tidy() {
	p.t.Helper()
	for _, g := range p.simulated.Groups() {
		for _, node := range p.nodes() {
			state, ok := g.Members[p.ports[node].GUID]
			if !ok {
				continue
			}
			found := p.ask(node, "get", p.request(node, g.MGID, state, trusted, func(r *sa.Request) { r.Mask = sa.MaskMGID | sa.MaskPortGID }))
			from := node
			if len(found.Records) == 1 && found.Records[0].ProxyJoin {
				from = "a" // in every partition
			}
			p.ask(from, "delete", p.request(node, g.MGID, state))
		}
	}
}

// nodes by their names.
func (p *play) nodes() []string {
	var names []string
	for node := range p.ports {
		names = append(names, node)
	}
	slices.Sort(names)
	return names
}

// change is one to a request.
type change func(*sa.Request)

// request is a node's port's for a group, with all that creation needs.
func (p *play) request(node string, mgid netip.Addr, state sa.JoinState, changes ...change) sa.Request {
	r := sa.Request{Mask: sa.MaskCreate, Record: sa.MCMemberRecord{
		MGID: mgid, PortGID: p.simulated.PortGID(p.ports[node].GUID), QKey: 0x01234567, PKey: 0xffff, JoinState: state,
	}}
	for _, c := range changes {
		c(&r)
	}
	return r
}

func (p *play) set(node string, mgid netip.Addr, state sa.JoinState, changes ...change) answer {
	p.t.Helper()
	return p.ask(node, "set", p.request(node, mgid, state, changes...))
}

func (p *play) delete(node string, mgid netip.Addr, state sa.JoinState, changes ...change) answer {
	p.t.Helper()
	return p.ask(node, "delete", p.request(node, mgid, state, changes...))
}

// members asks for a group's members as diagnostics do, and for the group.
func (p *play) members(node string, mgid netip.Addr) []sa.MCMemberRecord {
	p.t.Helper()
	byMGID := func(r *sa.Request) { r.Mask = sa.MaskMGID }
	p.ask(node, "get", p.request(node, mgid, 0, byMGID))
	return p.ask(node, "table", p.request(node, mgid, 0, byMGID, trusted)).Records
}

func trusted(r *sa.Request) { r.Trusted = true }

// only is what a request to a group that exists needs.
func only(r *sa.Request) { r.Mask = sa.MaskJoin }

// without components, and with others.
func without(m sa.Mask) change { return func(r *sa.Request) { r.Mask &^= m } }

func mlid(v uint16) change { return func(r *sa.Request) { r.Record.MLID = v } }
func qkey(v uint32) change { return func(r *sa.Request) { r.Record.QKey = v; r.Mask |= sa.MaskQKey } }
func pkey(v uint16) change { return func(r *sa.Request) { r.Record.PKey = v; r.Mask |= sa.MaskPKey } }

func mtu(s sa.Selector, v sa.MTU) change {
	return func(r *sa.Request) {
		r.Record.MTUSelector, r.Record.MTU = s, v
		r.Mask |= sa.MaskMTU | sa.MaskMTUSelector
	}
}

func rate(s sa.Selector, v sa.Rate) change {
	return func(r *sa.Request) {
		r.Record.RateSelector, r.Record.Rate = s, v
		r.Mask |= sa.MaskRate | sa.MaskRateSelector
	}
}

func scope(v uint8) change {
	return func(r *sa.Request) { r.Record.Scope = v; r.Mask |= sa.MaskScope }
}

func portGID(v string) change {
	return func(r *sa.Request) { r.Record.PortGID = netip.MustParseAddr(v) }
}

// udp is a group as rdma_cm's port space UDP makes it in the default partition.
func udp(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("ff12:4001:ffff::f01:%x", n)) }
