package sys

// The ABI of /dev/infiniband/rdma_cm, version 4 (rdma/rdma_user_cm.h). A
// command is one write(2) of a header and a payload; the kernel stores its
// answer where the payload's response pointer says. All integers are in host
// order unless marked otherwise. Padding is explicit: the kernel copies its
// own struct's size, whatever the header says.

// Commands.
const (
	cmdCreateID  = 0
	cmdDestroyID = 1
	cmdGetEvent  = 12
	cmdLeave     = 17
	cmdQuery     = 19
	cmdBind      = 20
	cmdJoin      = 22
)

// Port spaces (enum rdma_ucm_port_space).
const (
	PortSpaceIPoIB = 0x0002
	PortSpaceUDP   = 0x0111
)

// Join flags.
const (
	JoinFullMember         = 0
	JoinSendOnlyFullMember = 1
)

// Events (enum rdma_cm_event_type).
const (
	EventDeviceRemoval  = 11
	EventMulticastJoin  = 12
	EventMulticastError = 13
	EventAddrChange     = 14
)

// QPNMulticast is the queue pair number of every multicast group.
const QPNMulticast = 0xFFFFFF

const (
	qpTypeUD  = 4
	queryAddr = 0 // RDMA_USER_CM_QUERY_ADDR
)

// request is a command as it is written.
type request[P any] struct {
	Command uint32
	In      uint16 // payload's length
	Out     uint16 // answer's length
	Payload P
}

type createID struct {
	UID      uint64
	Response uint64
	PS       uint16
	QPType   uint8
	_        [5]uint8
}

type idAnswer struct {
	ID uint32
}

// destroyID is also LEAVE_MCAST's payload, with the multicast handle as ID.
type destroyID struct {
	Response uint64
	ID       uint32
	_        uint32
}

type destroyIDAnswer struct {
	EventsReported uint32
}

type bind struct {
	ID       uint32
	AddrSize uint16
	_        uint16
	Addr     sockaddrStorage
}

type query struct {
	Response uint64
	ID       uint32
	Option   uint32
}

type queryAddrAnswer struct {
	NodeGUID    [8]byte // big endian
	Port        uint8
	_           uint8
	PKey        [2]byte // big endian
	SourceSize  uint16
	DestSize    uint16
	Source      sockaddrStorage
	Dest        sockaddrStorage
	DeviceIndex uint32
	_           uint32
}

type joinMulticast struct {
	Response uint64
	UID      uint64
	ID       uint32
	AddrSize uint16
	Flags    uint16
	Addr     sockaddrStorage
}

type getEvent struct {
	Response uint64
}

// eventAnswer is rdma_ucm_event_resp with the UD arm of its union; the other
// arm, for connections, never comes to an id of queue pair type UD.
type eventAnswer struct {
	UID    uint64
	ID     uint32
	Event  uint32
	Status int32
	QPN    uint32
	QKey   uint32
	AH     ahAttr
	_      [256]byte // private data
	_      uint8     // its length
	_      [7]uint8
	_      uint32
	_      [2]uint32 // ECE
}

// ahAttr is ib_uverbs_ah_attr.
type ahAttr struct {
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	_            uint8
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     uint8
	Port         uint8
	_            uint8
}

// sockaddrStorage is a struct __kernel_sockaddr_storage.
type sockaddrStorage [128]byte
