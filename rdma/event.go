package rdma

import (
	"fmt"
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
