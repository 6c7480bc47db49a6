package rdma

import (
	"net/netip"
	"sync"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// Params is what is known of a membership: what a sender needs for its address
// handle and a receiver for attaching its queue pair. Sources: struct
// rdma_ucm_ud_param, cma_make_mc_event, and where it says so the id and its port.
type Params struct {
	// MGID and MLID name the group on the wire; both are needed to attach and,
	// the same pair, to detach. MLID is 0 on RoCE.
	MGID netip.Addr
	MLID uint16
	// QKey is the group's Q_Key: 0x01234567 in port space UDP.
	QKey uint32
	// QPN is the destination queue pair number: 0xFFFFFF, as for every group.
	QPN uint32
	// GIDIndex is the source GID's index in the port's table, and GID its value:
	// on RoCE it is made from the address that the id is bound to (rdma_ip2gid);
	// on InfiniBand it is read from the table, and the zero Addr where it can't
	// be. An index can change while the GID stays: look it up again by value
	// before use, among Port.GIDs.
	GIDIndex int
	GID      netip.Addr
	// GIDType is what packets look like on RoCE, as the MGID shows it
	// (cma_iboe_set_mgid); "" on InfiniBand.
	GIDType GIDType
	// PKey is the P_Key of the id's interface, and PKeyIndex its index in the
	// port's table, which a queue pair needs: that of the full member, or else of
	// the limited one (ib_find_cached_pkey); -1 where the table can't be read or
	// doesn't have it. On RoCE, 0xFFFF and 0.
	PKey      uint16
	PKeyIndex int
	// FlowLabel, 20 bits, to StaticRate are the rest of the address vector, the
	// last being one of enum ibv_rate. IsGlobal: packets carry a GRH.
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     bool
	// Device and Port are the RDMA port that is a member; "" if the device's
	// name couldn't be read.
	Device string
	Port   int
}

// source is the port behind an id: what its memberships have in common, and
// the kernel doesn't tell with each of them. Looked up once, or the look-ups
// would cost more than the join.
type source struct {
	kernel   sys.Kernel
	device   string
	port     int
	addr     netip.Addr
	pkey     uint16
	ethernet bool

	mu        sync.Mutex
	gidIndex  int
	gid       netip.Addr // at gidIndex, on InfiniBand; invalid: not read
	pkeyIndex int
	pkeyRead  time.Time
}

// pkeyAge is how long a P_Key's index is taken to be right: a subnet manager
// may change the table at any time, and nothing tells.
const pkeyAge = time.Second

// interfacePKey is the P_Key of the interface that an id is bound to. IPoIB's
// always has the full member's bit, in QUERY_ADDR as in its broadcast address;
// an Ethernet interface has 0 there.
func interfacePKey(bound sys.BoundAddr) uint16 {
	if bound.PKey == 0 {
		return defaultPKey
	}
	return bound.PKey
}

// bind sets what binding an id tells.
func (s *source) bind(kernel sys.Kernel, device string, addr netip.Addr, bound sys.BoundAddr) {
	s.kernel, s.device, s.port, s.addr = kernel, device, int(bound.Port), addr
	s.pkey, s.ethernet = interfacePKey(bound), bound.PKey == 0
}

// params completes what a join's event tells.
func (s *source) params(ud sys.UDParam) Params {
	p := Params{
		MGID:         netip.AddrFrom16(ud.MGID),
		MLID:         ud.MLID,
		QKey:         ud.QKey,
		QPN:          ud.QPN,
		GIDIndex:     int(ud.SGIDIndex),
		FlowLabel:    ud.FlowLabel,
		HopLimit:     ud.HopLimit,
		TrafficClass: ud.TrafficClass,
		SL:           ud.SL,
		SrcPathBits:  ud.SrcPathBits,
		StaticRate:   ud.StaticRate,
		IsGlobal:     ud.IsGlobal,
		Device:       s.device,
		Port:         int(ud.Port),
		PKey:         s.pkey,
	}
	if s.ethernet {
		p.GID = netip.AddrFrom16(s.addr.As16())
		p.GIDType = RoCEv1
		if p.MGID.Is4In6() {
			p.GIDType = RoCEv2
		}
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.GID = s.readGID(p.GIDIndex)
	p.PKeyIndex = s.readPKeyIndex(time.Now())
	return p
}

// readGID is the GID at an index; s.mu is held. One that can't be read, because
// the device went this moment, isn't the membership's failure.
func (s *source) readGID(index int) netip.Addr {
	if !s.gid.IsValid() || s.gidIndex != index {
		gid, err := s.kernel.GID(s.device, s.port, index)
		if err != nil || gid.GID.IsUnspecified() {
			return netip.Addr{}
		}
		s.gidIndex, s.gid = index, gid.GID
	}
	return s.gid
}

// readPKeyIndex is the P_Key's index; s.mu is held.
func (s *source) readPKeyIndex(now time.Time) int {
	if now.Sub(s.pkeyRead) < pkeyAge {
		return s.pkeyIndex
	}
	table, err := s.kernel.PKeys(s.device, s.port)
	if err != nil {
		return -1
	}
	s.pkeyRead, s.pkeyIndex = now, pkeyIndex(table, s.pkey)
	return s.pkeyIndex
}

// defaultPKey is the default partition's, full member.
const defaultPKey = 0xffff

// pkeyFull is the bit of a P_Key that says full member; the others are its
// partition's.
const pkeyFull = 0x8000

// pkeyIndex looks a P_Key's partition up as ib_find_cached_pkey does: the first
// full membership, or else the last limited one; -1: none.
func pkeyIndex(table []uint16, pkey uint16) int {
	limited := -1
	for i, entry := range table {
		switch {
		case entry&^pkeyFull == 0 || (entry^pkey)&^pkeyFull != 0:
		case entry&pkeyFull != 0:
			return i
		default:
			limited = i
		}
	}
	return limited
}
