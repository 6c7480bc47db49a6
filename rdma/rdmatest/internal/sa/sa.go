package sa

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
)

// Where MLIDs begin and end; 0xFFFF is the permissive LID.
const (
	FirstMLID uint16 = 0xC000
	LastMLID  uint16 = 0xFFFE
)

// DefaultSubnetPrefix is the one of a subnet that nobody gave one.
const DefaultSubnetPrefix uint64 = 0xfe80 << 48

// Options of an SA; the zero value is OpenSM's defaults.
type Options struct {
	// SubnetPrefix is the upper half of every port's GID;
	// DefaultSubnetPrefix where zero.
	SubnetPrefix uint64
	// MLIDs is how many the subnet has, as the smallest multicast table among
	// its switches allows: 1 to 0x3FFF, 0x3FFF where zero.
	MLIDs int
}

// Port is an endport of the subnet.
type Port struct {
	GUID uint64
	// MTU is its neighbour MTU, Rate its active width and speed: what a group
	// may need at most for the port to join it.
	MTU  MTU
	Rate Rate
	// PKeys is its P_Key table; the top bit is full membership.
	PKeys []uint16
}

// hasPKey: of either membership, as OpenSM looks.
func (p *Port) hasPKey(pkey uint16) bool {
	return pkey&0x7fff == 0 || slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k&0x7fff == pkey&0x7fff })
}

// sharesPKey: have both a P_Key of which one is a full member?
func (p *Port) sharesPKey(o *Port) bool {
	if p.GUID == o.GUID || len(p.PKeys) == 0 || len(o.PKeys) == 0 {
		return true
	}
	return slices.ContainsFunc(p.PKeys, func(a uint16) bool {
		return slices.ContainsFunc(o.PKeys, func(b uint16) bool {
			return a&0x7fff != 0 && a&0x7fff == b&0x7fff && (a|b)&0x8000 != 0
		})
	})
}

// SA is the part of a subnet manager that keeps multicast groups. Its calls
// must be serialised by the caller.
type SA struct {
	prefix   uint64
	lastMLID uint16
	ports    map[uint64]*Port
	groups   map[netip.Addr]*group
	// preconfigured are made again by Restart.
	preconfigured []Preconfigured
	// chosen counts the MGIDs that the subnet manager chose.
	chosen uint32
}

// group is one multicast group.
type group struct {
	// rec is the creator's record: its JoinState is what a query for the group
	// is matched with.
	rec     MCMemberRecord
	members map[uint64]*member
	// full counts members whose state had FullMember or SendOnlyFullMember;
	// the group goes when it comes back to 0, or stays for ever where OpenSM
	// loses count (see SA.Delete).
	full      int
	wellKnown bool
}

// member is a port in a group.
type member struct {
	gid   netip.Addr
	state JoinState
	// proxy: joined by another port for it.
	proxy bool
}

// New makes the SA of a subnet without ports and groups.
func New(o Options) *SA {
	if o.SubnetPrefix == 0 {
		o.SubnetPrefix = DefaultSubnetPrefix
	}
	most := int(LastMLID-FirstMLID) + 1
	if o.MLIDs < 1 || o.MLIDs > most {
		o.MLIDs = most
	}
	return &SA{
		prefix:   o.SubnetPrefix,
		lastMLID: FirstMLID + uint16(o.MLIDs-1),
		ports:    map[uint64]*Port{},
		groups:   map[netip.Addr]*group{},
	}
}

// SetPort adds a port, or changes one: memberships that it has stay, whatever
// its new MTU, rate and P_Keys are.
func (s *SA) SetPort(p Port) {
	p.PKeys = slices.Clone(p.PKeys)
	s.ports[p.GUID] = &p
}

// RemovePort is a port gone from the subnet: all its memberships go, and the
// groups of which it was the last full member.
func (s *SA) RemovePort(guid uint64) {
	for _, g := range s.groups {
		if m := g.members[guid]; m != nil {
			s.drop(g, guid, m, m.state)
		}
	}
	delete(s.ports, guid)
}

// PortGID is the GID of a port in this subnet.
func (s *SA) PortGID(guid uint64) netip.Addr {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], s.prefix)
	binary.BigEndian.PutUint64(raw[8:], guid)
	return netip.AddrFrom16(raw)
}

// Restart is a subnet manager that begins anew, such as another one after a
// failover: it knows the ports and the preconfigured groups, no member, and no
// other group. MLIDs are given out from the lowest again, so one group's can
// become another's.
func (s *SA) Restart() {
	s.groups = map[netip.Addr]*group{}
	s.chosen = 0
	configured := s.preconfigured
	s.preconfigured = nil
	for _, c := range configured {
		if _, err := s.Precreate(c); err != nil {
			continue // OpenSM too does without it
		}
	}
}

// Group is a multicast group of the subnet.
type Group struct {
	MGID      netip.Addr
	MLID      uint16
	QKey      uint32
	PKey      uint16
	MTU       MTU
	Rate      Rate
	WellKnown bool
	// Members by their port's GUID. A group that isn't well-known and has none
	// is one that OpenSM leaked (see SA.Delete).
	Members map[uint64]JoinState
}

// Groups are the subnet's, sorted by MGID.
func (s *SA) Groups() []Group {
	var out []Group
	for _, g := range s.sorted() {
		o := Group{
			MGID: g.rec.MGID, MLID: g.rec.MLID, QKey: g.rec.QKey, PKey: g.rec.PKey,
			MTU: g.rec.MTU, Rate: g.rec.Rate, WellKnown: g.wellKnown,
			Members: map[uint64]JoinState{},
		}
		for guid, m := range g.members {
			o.Members[guid] = m.state
		}
		out = append(out, o)
	}
	return out
}

func (s *SA) sorted() []*group {
	return slices.SortedFunc(maps.Values(s.groups), func(a, b *group) int {
		return a.rec.MGID.Compare(b.rec.MGID)
	})
}

// mlid is the one for a new group: the requested one if it is free, else the
// lowest that is.
func (s *SA) mlid(requested uint16) (uint16, bool) {
	used := map[uint16]bool{}
	for _, g := range s.groups {
		used[g.rec.MLID] = true
	}
	if requested >= FirstMLID && requested <= s.lastMLID && !used[requested] {
		return requested, true
	}
	for mlid := FirstMLID; mlid <= s.lastMLID; mlid++ {
		if !used[mlid] {
			return mlid, true
		}
	}
	return 0, false
}

// guidOf is the port's part of a GID.
func guidOf(a netip.Addr) uint64 {
	raw := a.As16()
	return binary.BigEndian.Uint64(raw[8:])
}

func prefixOf(a netip.Addr) uint64 {
	raw := a.As16()
	return binary.BigEndian.Uint64(raw[:8])
}

// inOrder are a group's members by GUID.
func (g *group) inOrder() []*member {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *member) int {
		return cmp.Compare(guidOf(a.gid), guidOf(b.gid))
	})
}
