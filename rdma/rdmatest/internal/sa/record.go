package sa

import "net/netip"

// MCMemberRecord is the SA's attribute of that name (IBA volume 1, 15.2.5.17;
// struct ib_sa_mcmember_rec in the kernel's rdma/ib_sa.h), its integers in host
// order. Bits beyond a field's width are dropped, as they would be on the wire.
type MCMemberRecord struct {
	// MGID of the group; the zero Addr and :: are MGID zero, with which Set
	// lets the subnet manager choose one.
	MGID netip.Addr
	// PortGID of the member: subnet prefix and port GUID.
	PortGID                netip.Addr
	QKey                   uint32
	MLID                   uint16
	MTUSelector            Selector
	MTU                    MTU
	TClass                 uint8
	PKey                   uint16
	RateSelector           Selector
	Rate                   Rate
	PacketLifeTimeSelector Selector
	PacketLifeTime         uint8  // 6 bits: 4.096 µs × 2^value
	SL                     uint8  // 4 bits
	FlowLabel              uint32 // 20 bits
	HopLimit               uint8
	Scope                  uint8 // 4 bits: 2 link-local, 5 site, 8 organisation, 0xE global
	JoinState              JoinState
	ProxyJoin              bool
}

// Mask is a component mask: the fields of a record that a request gives.
type Mask uint64

// The components, as IB_SA_MCMEMBER_REC_* of the kernel's rdma/ib_sa.h.
const (
	MaskMGID Mask = 1 << iota
	MaskPortGID
	MaskQKey
	MaskMLID
	MaskMTUSelector
	MaskMTU
	MaskTClass
	MaskPKey
	MaskRateSelector
	MaskRate
	MaskPacketLifeTimeSelector
	MaskPacketLifeTime
	MaskSL
	MaskFlowLabel
	MaskHopLimit
	MaskScope
	MaskJoinState
	MaskProxyJoin
)

// What Set needs: MaskJoin for a group that exists (and Delete too), MaskCreate
// for one that doesn't. Both are OpenSM's, stricter than the specification.
const (
	MaskJoin   = MaskMGID | MaskPortGID | MaskJoinState
	MaskCreate = MaskJoin | MaskQKey | MaskTClass | MaskPKey | MaskFlowLabel | MaskSL
)

// JoinState is a set of memberships, 4 bits: one port can hold several.
type JoinState uint8

// The memberships. Only FullMember and SendOnlyFullMember create a group and
// keep it alive.
const (
	FullMember         JoinState = 1
	NonMember          JoinState = 2
	SendOnlyNonMember  JoinState = 4
	SendOnlyFullMember JoinState = 8
)

// full: does one of the memberships keep the group alive?
func (j JoinState) full() bool { return j&(FullMember|SendOnlyFullMember) != 0 }

// Selector tells how a request's MTU, rate or packet lifetime is meant; 2 bits.
// An answer's is always Exactly.
type Selector uint8

// The selectors (enum ib_sa_selector).
const (
	GreaterThan Selector = 0
	LessThan    Selector = 1
	Exactly     Selector = 2
	Largest     Selector = 3
)

// MTU is an MTU as records and ports have it (enum ib_mtu); 6 bits.
type MTU uint8

// The MTUs, in bytes.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

func (m MTU) valid() bool { return m >= MTU256 && m <= MTU4096 }

// wire is the record as it would come off the wire: fields cut to their widths,
// GIDs without zone and never the zero Addr.
func (r MCMemberRecord) wire() MCMemberRecord {
	r.MGID, r.PortGID = gid(r.MGID), gid(r.PortGID)
	r.MTUSelector &= 3
	r.MTU &= 0x3f
	r.RateSelector &= 3
	r.Rate &= 0x3f
	r.PacketLifeTimeSelector &= 3
	r.PacketLifeTime &= 0x3f
	r.SL &= 0xf
	r.FlowLabel &= 0xfffff
	r.Scope &= 0xf
	r.JoinState &= 0xf
	return r
}

// exactly is the record as an answer has it.
func (r MCMemberRecord) exactly() MCMemberRecord {
	r.MTUSelector, r.RateSelector, r.PacketLifeTimeSelector = Exactly, Exactly, Exactly
	return r
}

func gid(a netip.Addr) netip.Addr {
	if !a.IsValid() {
		return netip.IPv6Unspecified()
	}
	return netip.AddrFrom16(a.As16())
}
