package sa

import "net/netip"

// Request is a MAD of class SubnAdm for the attribute MCMemberRecord.
type Request struct {
	// Requester is the GUID of the port that sends it, PortGID in Record the
	// one that is meant: another port for a proxy join.
	Requester uint64
	Mask      Mask
	Record    MCMemberRecord
	// Trusted: with the subnet's SM_Key, as diagnostics have it. Then queries
	// tell the members.
	Trusted bool
}

// Set is SubnAdmSet: joins the port to the group, adding Record.JoinState to
// what it has already, and makes the group where there is none. The answer is the
// group's, with the port's JoinState; a field that neither the group nor the
// subnet manager decides is the request's.
//
// A group's creator decides its MTU and rate where it asks for one; else they
// are those of the port that creates it, and slower ports are refused (1B12).
//
// A refusal is an *Error; ErrNoAnswer where the requester is no port.
func (s *SA) Set(r Request) (MCMemberRecord, error) {
	rec := r.Record.wire()
	if err := validRequest(r.Mask, rec, "1B18"); err != nil {
		return MCMemberRecord{}, err
	}
	if err := s.checkPrefix(rec, "1B40"); err != nil {
		return MCMemberRecord{}, err
	}
	port := s.ports[guidOf(rec.PortGID)]
	if port == nil {
		return MCMemberRecord{}, invalid("", "no port has the GID %v", rec.PortGID)
	}
	requester := s.ports[r.Requester]
	if requester == nil {
		return MCMemberRecord{}, ErrNoAnswer
	}
	if !port.sharesPKey(requester) {
		return MCMemberRecord{}, invalid("", "port and requester share no P_Key")
	}
	if r.Mask&MaskPKey != 0 && rec.PKey&0x7fff == 0 {
		return MCMemberRecord{}, invalid("", "%#04x is no P_Key", rec.PKey)
	}

	g, created, err := s.findOrCreate(r.Mask, rec, port)
	if err != nil {
		return MCMemberRecord{}, err
	}
	if err := s.checkJoin(r.Mask, rec, g, port, requester); err != nil {
		if created {
			delete(s.groups, g.rec.MGID)
		}
		return MCMemberRecord{}, err
	}
	return g.join(rec, port != requester), nil
}

// validRequest is what Set and Delete look at before anything else.
func validRequest(mask Mask, rec MCMemberRecord, code string) error {
	if mask&MaskJoin != MaskJoin {
		return &Error{StatusInsufficientComponents, code, "MGID, PortGID and JoinState are needed"}
	}
	return validValues(mask, rec)
}

// validValues is what all methods look at.
func validValues(mask Mask, rec MCMemberRecord) error {
	const mtu, rate = MaskMTU | MaskMTUSelector, MaskRate | MaskRateSelector
	if mask&mtu == mtu && !rec.MTU.valid() {
		return invalid("", "%d is no MTU", rec.MTU)
	}
	if mask&rate == rate && !rec.Rate.valid() {
		return invalid("", "%d is no rate", rec.Rate)
	}
	return nil
}

func (s *SA) checkPrefix(rec MCMemberRecord, code string) error {
	if prefixOf(rec.PortGID) != s.prefix {
		return &Error{StatusInvalidGID, code, "the PortGID is of another subnet"}
	}
	return nil
}

func (s *SA) findOrCreate(mask Mask, rec MCMemberRecord, port *Port) (g *group, created bool, err error) {
	if g := s.groups[rec.MGID]; g != nil {
		if err := matches(mask, rec, g.rec); err != nil {
			return nil, false, err
		}
		return g, false, nil
	}
	if !rec.JoinState.full() {
		return nil, false, invalid("1B10", "only a full member creates a group")
	}
	if mask&MaskCreate != MaskCreate {
		return nil, false, &Error{StatusInsufficientComponents, "1B11", "there is no such group, and too little to create it"}
	}
	g, err = s.create(mask, rec, port)
	return g, err == nil, err
}

// checkJoin are the rules for a port of a group that exists by now.
func (s *SA) checkJoin(mask Mask, rec MCMemberRecord, g *group, port, requester *Port) error {
	switch {
	case !selects(mask, rec, g.rec):
		return invalid("1B12", "the group's MTU %d and rate %d are not what is asked for", g.rec.MTU, g.rec.Rate)
	case port.MTU < g.rec.MTU || port.Rate.Compare(g.rec.Rate) < 0:
		return invalid("1B12", "the group's MTU %d and rate %d are too much for the port", g.rec.MTU, g.rec.Rate)
	case rec.JoinState == 0:
		return invalid("1B12", "no JoinState")
	case !port.hasPKey(g.rec.PKey):
		return invalid("1B14", "the port isn't in partition %#04x", g.rec.PKey)
	case !g.mayModify(port.GUID, requester):
		return invalid("1B13", "not the requester's to change")
	}
	return nil
}

// mayModify (o15-0.2.1): the member itself, or for a proxy join whoever is in
// the group's partition.
func (g *group) mayModify(guid uint64, requester *Port) bool {
	m := g.members[guid]
	switch {
	case m == nil:
		return true
	case m.proxy:
		return requester.hasPKey(g.rec.PKey)
	default:
		return guid == requester.GUID
	}
}

// join adds to a port's membership.
func (g *group) join(rec MCMemberRecord, proxy bool) MCMemberRecord {
	guid := guidOf(rec.PortGID)
	m := g.members[guid]
	if m == nil {
		m = &member{gid: rec.PortGID, proxy: proxy}
		g.members[guid] = m
	}
	if rec.JoinState.full() && !m.state.full() {
		g.full++
	}
	m.state |= rec.JoinState
	answer := g.rec
	answer.PortGID, answer.ProxyJoin, answer.JoinState = rec.PortGID, rec.ProxyJoin, m.state
	return answer.exactly()
}

// matches: has the group what the request gives? Its MTU and rate are left to
// selects.
func matches(mask Mask, rec, group MCMemberRecord) error {
	switch {
	case mask&MaskQKey != 0 && rec.QKey != group.QKey:
		return invalid("1B30", "the group's Q_Key is %#08x", group.QKey)
	case mask&MaskPKey != 0 && (rec.PKey|group.PKey)&0x8000 == 0:
		return invalid("1B31", "both P_Keys are limited")
	case mask&MaskPKey != 0 && (rec.PKey^group.PKey)&0x7fff != 0:
		return invalid("1B32", "the group's P_Key is %#04x", group.PKey)
	case mask&MaskTClass != 0 && rec.TClass != group.TClass:
		return invalid("1B33", "the group's traffic class is %d", group.TClass)
	case mask&MaskSL != 0 && rec.SL != group.SL:
		return invalid("1B34", "the group's SL is %d", group.SL)
	case mask&MaskFlowLabel != 0 && rec.FlowLabel != group.FlowLabel:
		return invalid("1B35", "the group's flow label is %#x", group.FlowLabel)
	case mask&MaskHopLimit != 0 && rec.HopLimit != group.HopLimit:
		return invalid("1B36", "the group's hop limit is %d", group.HopLimit)
	}
	return nil
}

// selects: are the group's MTU and rate what the request's selectors ask for?
// OpenSM looks at the selector's component alone, and never at the lifetime.
func selects(mask Mask, rec, group MCMemberRecord) bool {
	return (mask&MaskMTUSelector == 0 || rec.MTUSelector.holds(int(group.MTU)-int(rec.MTU))) &&
		(mask&MaskRateSelector == 0 || rec.RateSelector.holds(group.Rate.Compare(rec.Rate)))
}

// holds, for how the group's value compares with the request's.
func (s Selector) holds(compared int) bool {
	switch s {
	case GreaterThan:
		return compared > 0
	case LessThan:
		return compared < 0
	case Exactly:
		return compared == 0
	default:
		return true
	}
}

// broadcastMGID is the IPoIB broadcast group's.
func broadcastMGID(pkey uint16, scope uint8) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0xff, 0x10 | scope, 0x40, 0x1b, byte(pkey >> 8), byte(pkey),
		12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff,
	})
}
