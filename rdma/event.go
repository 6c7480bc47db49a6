package rdma

import (
	"fmt"
	"net/netip"
)

// EventType is the type of an Event.
type EventType int

// The events of a Channel.
const (
	// MulticastJoined (RDMA_CM_EVENT_MULTICAST_JOIN): the membership is there,
	// and a queue pair given to Join is attached. On InfiniBand a subnet manager
	// answers before it has rewritten the switches, and on RoCE nothing in the
	// network confirms a join at all: joined is not yet delivering.
	MulticastJoined EventType = 1 + iota
	// MulticastError (RDMA_CM_EVENT_MULTICAST_ERROR): the join failed, or the
	// membership was lost. Leave the group, then join anew; until it has been
	// left, joining it again on this id is refused. Nobody rejoins by itself.
	MulticastError
	// DeviceRemoval (RDMA_CM_EVENT_DEVICE_REMOVAL): the id's device goes, and
	// every membership of the id with it. Close the id.
	DeviceRemoval
	// AddressChange (RDMA_CM_EVENT_ADDR_CHANGE): the id's interface has another
	// hardware address now, after a bond's failover for instance.
	AddressChange
)

func (t EventType) String() string {
	switch t {
	case MulticastJoined:
		return "MulticastJoined"
	case MulticastError:
		return "MulticastError"
	case DeviceRemoval:
		return "DeviceRemoval"
	case AddressChange:
		return "AddressChange"
	}
	return fmt.Sprintf("EventType(%d)", int(t))
}

// Event is something that happened to an id or to a membership.
type Event struct {
	Type EventType
	// ID is the id that it happened to, or that holds the membership.
	ID *ID
	// Membership of MulticastJoined and MulticastError.
	Membership *Membership
	// Err of MulticastError: an *OpError. ETIMEDOUT: the join's deadline, or the
	// subnet manager's answer, passed. ENETRESET: the subnet manager was restarted, or
	// the port's LID changed. EAGAIN: no way to the subnet manager yet. EINVAL:
	// the subnet manager refused. EIO: the kernel gave no reason, as when the
	// interface's GID has gone. With Op "attach": the queue pair's own error.
	Err error
	// Params of MulticastJoined.
	Params Params
}

// Params is what the kernel tells about a membership: what a sender needs for
// its address handle and a receiver for attaching its queue pair. Sources:
// struct rdma_ucm_ud_param, cma_make_mc_event.
type Params struct {
	// MGID and MLID name the group on the wire; both are needed to attach and,
	// the same pair, to detach. MLID is 0 on RoCE.
	MGID netip.Addr
	MLID uint16
	// QKey is the group's Q_Key: 0x01234567 in port space UDP.
	QKey uint32
	// QPN is the destination queue pair number: 0xFFFFFF, as for every group.
	QPN uint32
	// GIDIndex is the source GID's index in the port's table, and GID its value,
	// the zero Addr where it couldn't be read. An index can change while the
	// GID stays: look it up again by value before use.
	GIDIndex int
	GID      netip.Addr
	// GIDType is the source GID's; "" on InfiniBand, or where it isn't known.
	GIDType GIDType
	// PKey is the P_Key of the id's interface, and PKeyIndex its index in the
	// port's table, which a queue pair needs; -1 where it couldn't be looked up.
	// On RoCE, 0xFFFF and 0.
	PKey      uint16
	PKeyIndex int
	// The rest of the address vector. IsGlobal: packets carry a GRH.
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     bool
	// Device and Port are the RDMA port that is a member.
	Device string
	Port   int
}
