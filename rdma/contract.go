// Package rdma is rdma_cm multicast in pure Go.
//
// THIS FILE IS A CONTRACT between the people building the parts; it is
// replaced by the real package (files channel.go, id.go, ...), whose
// exported surface is a superset of this.
package rdma

import (
	"context"
	"net/netip"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// Host is one machine's RDMA stack: the running kernel's, or a node of the
// simulated fabric of rdmatest.
type Host struct{ kernel sys.Kernel }

// Local is the running kernel.
func Local() *Host { panic("contract") }

// NewHost is for rdmatest; a sys.Kernel can only come from this module.
func NewHost(kernel sys.Kernel) *Host { return &Host{kernel: kernel} }

// NetNS is an open network namespace. Close it; it keeps the namespace alive.
type NetNS struct{ _ int }

// OpenNetNS opens the namespace at path (/var/run/netns/x, /proc/PID/ns/net).
func (h *Host) OpenNetNS(path string) (*NetNS, error) { panic("contract") }
func (ns *NetNS) Close() error                        { panic("contract") }

// Device is one RDMA device with its ports (the inventory).
type Device struct {
	Name     string // rxe0, mlx5_0
	NodeGUID string // "0011:2233:4455:6677"
	NUMANode int    // -1 unknown
	Ports    []Port
}
type Port struct {
	Number     int
	LinkLayer  LinkLayer
	State      string   // Active, Down, Init, Armed
	Interfaces []string // netdevs of its GIDs in the node's own namespace
}
type LinkLayer string // "Ethernet", "InfiniBand"

// Devices lists the RDMA devices of the host.
func (h *Host) Devices() ([]Device, error) { panic("contract") }

// Interface is a network interface that rdma_cm can bind to.
type Interface struct {
	Name      string
	Index     int
	Addrs     []netip.Prefix // the addresses rdma_cm can bind to, IPv4 first, in the kernel's order
	Device    string
	Port      int
	LinkLayer LinkLayer
}

// Interfaces lists the RDMA-capable interfaces in a namespace (nil: the calling
// process's). ENOENT when rdma_cm isn't there (module rdma_ucm not loaded).
func (h *Host) Interfaces(ns *NetNS) ([]Interface, error) { panic("contract") }

// LinkNames lists all interfaces in a namespace, RDMA-capable or not (for errors that tell "doesn't exist" from "isn't RDMA").
func (h *Host) LinkNames(ns *NetNS) ([]string, error) { panic("contract") }

// Channel is an event channel: one open file on /dev/infiniband/rdma_cm.
type Channel struct{ _ int }

// OpenChannel opens one. ENOENT: the module rdma_ucm isn't loaded.
func (h *Host) OpenChannel() (*Channel, error) { panic("contract") }

// Next waits for the next event. net.ErrClosed after Close.
func (c *Channel) Next(ctx context.Context) (Event, error) { panic("contract") }

// Close leaves everything of every id and closes the file.
func (c *Channel) Close() error { panic("contract") }

type PortSpace uint16

const (
	PortSpaceIPoIB PortSpace = 0x0002
	PortSpaceUDP   PortSpace = 0x0111
)

// NewID creates an id in a namespace (nil: the caller's own).
func (c *Channel) NewID(ns *NetNS, ps PortSpace) (*ID, error) { panic("contract") }

// ID is an rdma_cm id of queue pair type UD.
type ID struct{ _ int }

func (id *ID) Bind(addr netip.Addr) error { panic("contract") }

type JoinMode uint16

const (
	FullMember         JoinMode = 0
	SendOnlyFullMember JoinMode = 1
)

// JoinOptions: zero value: full member, DefaultJoinTimeout, no queue pair.
type JoinOptions struct {
	Mode    JoinMode
	Timeout time.Duration // from the call to the join event; then the join is cancelled and MulticastError with ETIMEDOUT is delivered
	QP      QueuePair     // attached when the join completes, detached by Leave; nil: none
}

// QueuePair is attached on join and detached on leave.
type QueuePair interface {
	AttachMulticast(mgid netip.Addr, mlid uint16) error
	DetachMulticast(mgid netip.Addr, mlid uint16) error
}

// Join asks for membership; it returns once the kernel has taken the request.
// The outcome is an event of the channel: MulticastJoined or MulticastError.
func (id *ID) Join(group netip.Addr, opts JoinOptions) (*Membership, error) { panic("contract") }

// Leave is rdma_leave_multicast(3).
func (id *ID) Leave(group netip.Addr) error { panic("contract") }

// Close destroys the id and leaves all its groups.
func (id *ID) Close() error { panic("contract") }

// Membership is one group joined, or being joined, on one id.
type Membership struct{ _ int }

func (m *Membership) Group() netip.Addr { panic("contract") }
func (m *Membership) ID() *ID           { panic("contract") }

type EventType int

const (
	MulticastJoined EventType = 1 + iota // RDMA_CM_EVENT_MULTICAST_JOIN
	MulticastError                       // RDMA_CM_EVENT_MULTICAST_ERROR; the membership is to be left and joined anew
	DeviceRemoval                        // the id's device goes; the id is to be closed
	AddressChange
)

type Event struct {
	Type       EventType
	ID         *ID
	Membership *Membership // of the first two types
	Err        error       // of MulticastError; errors.Is(Err, syscall.ENETRESET) and the like
	Params     Params      // of MulticastJoined
}

// Params is what the join event tells.
type Params struct {
	MGID         netip.Addr
	MLID         uint16
	QKey         uint32
	QPN          uint32
	GIDIndex     int
	GID          netip.Addr // looked up by index; zero where unknown
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     bool
	Port         int
	Device       string
}

// Errors are *OpError: Op ("join"), Group, Interface/Addr, Err (errno).
