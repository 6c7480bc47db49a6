// Package sys is the boundary to the kernel: the rdma_cm character device, the
// network namespaces, links and RDMA devices that package rdma needs, and
// nothing above them.
//
// Kernel is the seam. This package implements it for the running kernel
// (New), rdmatest for a simulated one. Being internal, the seam can move
// without breaking anybody outside this module.
package sys

import (
	"net/netip"
)

// Kernel is one machine's kernel.
type Kernel interface {
	// OpenCM opens the rdma_cm device. ENOENT, ENXIO or ENODEV: the kernel has
	// none, because the module rdma_ucm isn't loaded.
	OpenCM() (CM, error)
	// OpenNetNS opens the network namespace bound at path.
	OpenNetNS(path string) (NetNS, error)
	// Links lists the network interfaces of a namespace with their addresses.
	Links(ns NetNS) ([]Link, error)
	// DeviceNames lists the RDMA devices visible in a namespace by ibdev index.
	DeviceNames(ns NetNS) (map[uint32]string, error)
	// Devices lists the RDMA devices visible in a namespace with their ports and
	// GIDs, by name.
	Devices(ns NetNS) ([]Device, error)
	// LinkLayer is a port's link layer: "Ethernet" or "InfiniBand".
	LinkLayer(device string, port int) (string, error)
	// GID is an entry of a port's GID table.
	GID(device string, port, index int) (GID, error)
	// PKeys is a port's P_Key table; none on RoCE drivers that have no table.
	PKeys(device string, port int) ([]uint16, error)
	// IGMP counts the users of each IPv4 group on an interface of a namespace,
	// as /proc/net/igmp tells.
	IGMP(ns NetNS, link string) (map[netip.Addr]int, error)
	// WatchLinks tells of changes to the links and addresses of a namespace,
	// which it keeps alive until it is closed.
	WatchLinks(ns NetNS) (Watch, error)
	// WatchDevices tells of changes to RDMA devices, their ports and GIDs.
	WatchDevices() (Watch, error)
}

// Watch tells that something may have changed since it was last received from.
type Watch interface {
	// Changed has a capacity of one: what comes before it is received from is
	// told once. It is closed when the watch has ended.
	Changed() <-chan struct{}
	// Err is why the watch ended by itself; nil before, and after Close.
	Err() error
	Close() error
}

// NetNS is an open network namespace. A nil NetNS means the calling process's.
type NetNS interface {
	Close() error
}

// CM is one open file on the rdma_cm device. Every method but GetEvent is one
// command of the device and returns its errno unchanged. Safe for concurrent
// use; calls on one id or on its multicast handles must be serialised by the
// caller (concurrent leave and destroy was a use-after-free in older kernels).
type CM interface {
	// CreateID creates an id in a namespace. The kernel drops the events of an
	// id whose uid is zero.
	CreateID(ns NetNS, uid uint64, ps uint16) (id uint32, err error)
	Bind(id uint32, addr netip.Addr) error
	QueryAddr(id uint32) (BoundAddr, error)
	// Join answers with the handle of the new membership, whose events carry uid.
	Join(id uint32, uid uint64, group netip.Addr, flags uint16) (handle uint32, err error)
	// JoinMGID does so for a verbatim MGID (AF_IB).
	JoinMGID(id uint32, uid uint64, mgid netip.Addr, flags uint16) (handle uint32, err error)
	// Leave answers with the number of events reported for the membership.
	Leave(handle uint32) (events uint32, err error)
	// Destroy answers with the number of events reported for the id.
	Destroy(id uint32) (events uint32, err error)
	// GetEvent waits for the next event; os.ErrClosed after Close.
	GetEvent() (Event, error)
	// Close destroys every id of the file, which leaves all their groups.
	Close() error
}

// BoundAddr is what the kernel tells about a bound id.
type BoundAddr struct {
	NodeGUID    uint64
	Port        uint8
	PKey        uint16
	Source      netip.Addr
	DeviceIndex uint32
}

// Event is one event as the kernel reports it.
type Event struct {
	UID    uint64 // of the id, or of the membership for multicast events
	ID     uint32 // likewise
	Type   uint32
	Status int32 // negative errno
	UD     UDParam
}

// UDParam is the part of an event that says how to reach the group.
type UDParam struct {
	QPN          uint32
	QKey         uint32
	MGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	MLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     bool
	Port         uint8
}

// Link is a network interface.
type Link struct {
	Index        int
	Name         string
	Loopback     bool
	HardwareAddr []byte // 6 bytes on Ethernet, 20 on IPoIB
	Addrs        []netip.Prefix
}

// Device is an RDMA device.
type Device struct {
	Name     string
	NodeGUID string // "0011:2233:4455:6677", as sysfs prints it
	NodeType string // "1: CA", "4: RNIC" (iWARP), as sysfs prints it; "" unknown
	NUMANode int    // -1: unknown
	UVerbs   string // "uverbs0"; "": user space has no verbs on it
	Ports    []Port
}

// Port is a port of a Device.
type Port struct {
	Number    int
	LinkLayer string
	State     string // "4: ACTIVE", as sysfs prints it
	GIDs      []GID  // non-zero entries
}

// GID is an entry of a port's GID table.
type GID struct {
	Index     int
	GID       netip.Addr
	Type      string // "RoCE v2", "IB/RoCE v1", as sysfs prints it; "" unknown
	Interface string // "" on InfiniBand
}
