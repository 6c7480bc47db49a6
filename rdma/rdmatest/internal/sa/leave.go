package sa

// Delete is SubnAdmDelete: takes Record.JoinState from what the port holds in
// the group. The answer is the request with the port's remaining JoinState, 0
// where it is no member any more; with the last full member the group goes, its
// other members too, and its MLID is free at once. A well-known group stays.
//
// It follows OpenSM where that is odd: a port that is the group's only full
// member, as FullMember and SendOnlyFullMember both, and leaves the former, is
// taken out of the group, but still counted. The group then stays without
// members, and its MLID is lost, until another SA starts (osm_mgrp_remove_port).
func (s *SA) Delete(r Request) (MCMemberRecord, error) {
	rec := r.Record.wire()
	if err := validRequest(r.Mask, rec, "1B20"); err != nil {
		return MCMemberRecord{}, err
	}
	if err := s.checkPrefix(rec, "1B41"); err != nil {
		return MCMemberRecord{}, err
	}
	g := s.groups[rec.MGID]
	if g == nil {
		return MCMemberRecord{}, invalid("", "there is no group %v", rec.MGID)
	}
	guid := guidOf(rec.PortGID)
	m := g.members[guid]
	if m == nil || rec.JoinState == 0 || rec.JoinState&^m.state != 0 {
		return MCMemberRecord{}, invalid("1B25", "the port isn't such a member")
	}
	requester := s.ports[r.Requester]
	if requester == nil || !g.mayModify(guid, requester) {
		return MCMemberRecord{}, invalid("1B25", "not the requester's to change")
	}
	rec.Scope = g.rec.Scope
	rec.JoinState = s.drop(g, guid, m, rec.JoinState)
	return rec.exactly(), nil
}

// drop takes memberships from a port and returns those that stay, even if the
// group then goes.
func (s *SA) drop(g *group, guid uint64, m *member, left JoinState) JoinState {
	had := m.state
	rest := had &^ left
	// Are there full members besides? OpenSM doesn't count the port itself if
	// it was FullMember, only then.
	others := g.full
	if had&FullMember != 0 {
		others--
	}
	stays := rest
	if rest&FullMember != 0 || rest != 0 && others > 0 {
		m.state = rest
	} else {
		stays = 0
		delete(g.members, guid)
	}
	if had.full() && !rest.full() {
		if g.full--; g.full == 0 {
			s.cleanUp(g)
		}
	}
	return stays
}

// cleanUp is of a group without full members.
func (s *SA) cleanUp(g *group) {
	clear(g.members)
	if !g.wellKnown {
		delete(s.groups, g.rec.MGID)
	}
}
