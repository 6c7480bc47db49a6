package sa

import "net/netip"

// Get is SubnAdmGet: the one record that the request matches, StatusNoRecords
// or StatusTooManyRecords else. A requester sees the groups of its own P_Keys; without
// Trusted one record for each, without PortGID, JoinState and ProxyJoin.
func (s *SA) Get(r Request) (MCMemberRecord, error) {
	all, err := s.GetTable(r)
	switch {
	case err != nil:
		return MCMemberRecord{}, err
	case len(all) == 0:
		return MCMemberRecord{}, &Error{StatusNoRecords, "", "no such record"}
	case len(all) > 1:
		return MCMemberRecord{}, &Error{StatusTooManyRecords, "4C05", "several records match"}
	}
	return all[0], nil
}

// GetTable is SubnAdmGetTable: all records that the request matches, sorted by
// MGID and port GUID.
func (s *SA) GetTable(r Request) ([]MCMemberRecord, error) {
	rec := r.Record.wire()
	if err := validValues(r.Mask, rec); err != nil {
		return nil, err
	}
	requester := s.ports[r.Requester]
	if requester == nil {
		return nil, ErrNoAnswer
	}
	var out []MCMemberRecord
	for _, g := range s.sorted() {
		if !requester.hasPKey(g.rec.PKey) || !g.answers(r.Mask, rec) {
			continue
		}
		for _, found := range g.records(r.Mask, rec, r.Trusted) {
			if !r.Trusted {
				found.PortGID, found.JoinState, found.ProxyJoin = netip.IPv6Unspecified(), 0, false
			}
			out = append(out, found)
		}
	}
	return out, nil
}

// answers: is the group itself one that the query means? ProxyJoin isn't looked
// at: OpenSM compares another bit of its byte, which nobody sets.
func (g *group) answers(mask Mask, rec MCMemberRecord) bool {
	return (mask&MaskMGID == 0 || rec.MGID == g.rec.MGID) &&
		(mask&MaskMLID == 0 || rec.MLID == g.rec.MLID) &&
		(mask&MaskScope == 0 || rec.Scope == g.rec.Scope) &&
		matches(mask, rec, g.rec) == nil && selects(mask, rec, g.rec)
}

// records of the group: of one member, of all, or of the group as such, whose
// JoinState is its creator's.
func (g *group) records(mask Mask, rec MCMemberRecord, trusted bool) []MCMemberRecord {
	var candidates []*member
	switch {
	case mask&MaskPortGID != 0:
		if m := g.members[guidOf(rec.PortGID)]; m != nil {
			candidates = []*member{m}
		}
	case trusted:
		candidates = g.inOrder()
	default:
		candidates = []*member{{gid: netip.IPv6Unspecified(), state: g.rec.JoinState}}
	}
	var out []MCMemberRecord
	for _, m := range candidates {
		if mask&MaskJoinState != 0 && rec.JoinState != m.state {
			continue
		}
		found := g.rec
		found.PortGID, found.JoinState, found.ProxyJoin = m.gid, m.state, m.proxy
		out = append(out, found)
	}
	return out
}
