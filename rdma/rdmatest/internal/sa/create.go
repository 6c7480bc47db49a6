package sa

import (
	"encoding/binary"
	"net/netip"
)

// Preconfigured is a group that the subnet manager makes by itself and keeps
// without members, as a line of OpenSM's partitions.conf does.
type Preconfigured struct {
	// PKey of the partition; the group has it with full membership.
	PKey uint16
	// MGID is the partition's IPoIB broadcast group where zero.
	MGID netip.Addr
	// Scope of the MGID: link-local (2) where zero. Put into the MGID.
	Scope uint8
	// QKey is 0x0b1b where zero.
	QKey uint32
	// MTU is 2048 bytes and Rate 10 Gbit/s where zero: ports that have more
	// get no more, ports that have less can't join.
	MTU       MTU
	Rate      Rate
	SL        uint8
	TClass    uint8
	FlowLabel uint32
}

// What OpenSM's partitions have by default.
const (
	defaultQKey  uint32 = 0x0b1b
	linkLocal    uint8  = 2
	hopLimitMax  uint8  = 255
	lifetime     uint8  = 18 // OpenSM's subnet_timeout: about a second
	ipoibV4      uint16 = 0x401b
	ipoibV6      uint16 = 0x601b
	saAssigned   uint16 = 0xa01b
	fullPKey     uint16 = 0x8000
	reservedBits byte   = 0xe0
)

// Precreate makes a group by configuration; Restart makes it again. One that
// exists already becomes well-known as it is.
func (s *SA) Precreate(c Preconfigured) (Group, error) {
	if c.Scope == 0 {
		c.Scope = linkLocal
	}
	if !c.MGID.IsValid() || c.MGID.IsUnspecified() {
		c.MGID = broadcastMGID(c.PKey|fullPKey, c.Scope)
	}
	if c.QKey == 0 {
		c.QKey = defaultQKey
	}
	if c.MTU == 0 {
		c.MTU = MTU2048
	}
	if c.Rate == 0 {
		c.Rate = Rate10Gbps
	}
	raw := c.MGID.As16()
	raw[1] = raw[1]&0xf0 | c.Scope&0xf
	rec := MCMemberRecord{
		MGID: netip.AddrFrom16(raw), QKey: c.QKey, MTUSelector: Exactly, MTU: c.MTU,
		TClass: c.TClass, PKey: c.PKey | fullPKey, RateSelector: Exactly, Rate: c.Rate,
		PacketLifeTime: lifetime, SL: c.SL, FlowLabel: c.FlowLabel,
		Scope: c.Scope, JoinState: FullMember,
	}.wire()
	if rec.Scope != linkLocal {
		rec.HopLimit = hopLimitMax
	}
	g := s.groups[rec.MGID]
	if g == nil {
		var err error
		const mask = MaskMTU | MaskMTUSelector | MaskRate | MaskRateSelector
		if g, err = s.create(mask, rec, nil); err != nil {
			return Group{}, err
		}
	}
	g.wellKnown = true
	s.preconfigured = append(s.preconfigured, c)
	return Group{
		MGID: g.rec.MGID, MLID: g.rec.MLID, QKey: g.rec.QKey, PKey: g.rec.PKey,
		MTU: g.rec.MTU, Rate: g.rec.Rate, WellKnown: true,
	}, nil
}

// create makes a group without members; port is nil for a preconfigured one.
func (s *SA) create(mask Mask, rec MCMemberRecord, port *Port) (*group, error) {
	if rec.MGID.IsUnspecified() {
		mgid, ok := s.choose(mask, rec)
		if !ok {
			return nil, &Error{StatusNoResources, "1B23", "no MGID is free"}
		}
		rec.MGID = mgid
	} else if err := s.checkMGID(mask, rec); err != nil {
		return nil, err
	}
	if port != nil {
		var ok bool
		if rec.MTU, ok = port.mtuFor(mask, rec); !ok {
			return nil, invalid("1B26", "the port has no such MTU")
		}
		if rec.Rate, ok = port.rateFor(mask, rec); !ok {
			return nil, invalid("1B26", "the port has no such rate")
		}
	}
	var ok bool
	if rec.MLID, ok = s.mlid(rec.MLID); !ok {
		return nil, &Error{StatusNoResources, "1B19", "no MLID is free"}
	}
	g := &group{rec: rec.exactly(), members: map[uint64]*member{}}
	s.groups[rec.MGID] = g
	return g, nil
}

// choose is an MGID by the subnet manager: the subnet prefix, of which OpenSM
// overwrites the last two bytes, and a counter in little endian.
func (s *SA) choose(mask Mask, rec MCMemberRecord) (netip.Addr, bool) {
	scope := linkLocal
	if mask&MaskScope != 0 {
		scope = rec.Scope
	}
	raw := [16]byte{0xff, 0x10 | scope, 0xa0, 0x1b}
	binary.BigEndian.PutUint64(raw[4:], s.prefix)
	for range 1000 {
		binary.LittleEndian.PutUint32(raw[10:], s.chosen)
		s.chosen++
		if mgid := netip.AddrFrom16(raw); s.groups[mgid] == nil {
			return mgid, true
		}
	}
	return netip.Addr{}, false
}

// checkMGID: may a requester name this one (o15-0.1.5)?
func (s *SA) checkMGID(mask Mask, rec MCMemberRecord) error {
	raw := rec.MGID.As16()
	signature := binary.BigEndian.Uint16(raw[2:])
	scope := raw[1] & 0xf
	switch {
	case raw[0] != 0xff:
		return invalid("1B01", "%v is no multicast GID", rec.MGID)
	case signature == ipoibV4 || signature == ipoibV6:
		return s.checkIPoIB(mask, rec, broadcastMGID(binary.BigEndian.Uint16(raw[4:]), scope))
	case raw[1]&reservedBits != 0:
		return invalid("1B28", "%v has reserved flags", rec.MGID)
	case signature == saAssigned && scope == linkLocal:
		return invalid("1B24", "%v: link-local MGIDs with a01b are the subnet manager's to choose", rec.MGID)
	}
	return nil
}

// checkIPoIB: an IPoIB group needs its broadcast group, and is like that.
func (s *SA) checkIPoIB(mask Mask, rec MCMemberRecord, broadcast netip.Addr) error {
	if rec.MGID == broadcast {
		return nil
	}
	g := s.groups[broadcast]
	if g == nil {
		return invalid("1B1B", "there is no broadcast group %v", broadcast)
	}
	return matches(mask, rec, g.rec)
}

// mtuFor is the MTU of a group that the port creates: its own unless it asks
// for one.
func (p *Port) mtuFor(mask Mask, rec MCMemberRecord) (MTU, bool) {
	const both = MaskMTU | MaskMTUSelector
	if mask&both != both || rec.MTUSelector == Largest {
		return p.MTU, true
	}
	mtu := rec.MTU
	switch rec.MTUSelector {
	case GreaterThan:
		if mtu >= p.MTU {
			return 0, false
		}
		mtu = p.MTU
	case LessThan:
		if mtu > p.MTU {
			mtu = p.MTU
		} else {
			mtu--
		}
	}
	return mtu, mtu.valid()
}

// rateFor is so for the rate.
func (p *Port) rateFor(mask Mask, rec MCMemberRecord) (Rate, bool) {
	const both = MaskRate | MaskRateSelector
	if mask&both != both || rec.RateSelector == Largest {
		return p.Rate, true
	}
	rate := rec.Rate
	switch rec.RateSelector {
	case GreaterThan:
		if rate.Compare(p.Rate) >= 0 {
			return 0, false
		}
		rate = p.Rate
	case LessThan:
		if rate.Compare(p.Rate) > 0 {
			rate = p.Rate
		} else {
			rate = rate.slower()
		}
	}
	return rate, rate.valid()
}
