package rdma

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// LinkLayer is what a port's link is made of.
type LinkLayer string

// The link layers, as the kernel spells them.
const (
	LinkLayerEthernet   LinkLayer = "Ethernet"
	LinkLayerInfiniBand LinkLayer = "InfiniBand"
)

// PortState is the logical state of a port.
type PortState string

// The port states (enum ib_port_state).
const (
	PortUnknown     PortState = "Unknown"
	PortDown        PortState = "Down"
	PortInit        PortState = "Init"
	PortArmed       PortState = "Armed"
	PortActive      PortState = "Active"
	PortActiveDefer PortState = "ActiveDefer"
)

// GIDType is how packets from a GID look on the wire, on RoCE.
type GIDType string

// The GID types, as the kernel spells them.
const (
	// RoCEv1 is Ethernet with a GRH. rdma_cm's multicast is broken on it: the
	// kernel's leave takes back an IGMP membership that its join never made.
	RoCEv1 GIDType = "IB/RoCE v1"
	// RoCEv2 is UDP over IP.
	RoCEv2 GIDType = "RoCE v2"
)

// Device is an RDMA device: hardware or software, on PCI or not.
type Device struct {
	// Name is the device's name: mlx5_0, rxe0.
	Name string
	// NodeGUID is four groups of four hexadecimal digits, "0011:2233:4455:6677";
	// "" where the device hasn't been given one, as a virtual function may not.
	NodeGUID string
	// IWARP: the device speaks iWARP, which has no multicast, instead of
	// InfiniBand or RoCE.
	IWARP bool
	// NUMANode is the device's NUMA node, -1 where it has none.
	NUMANode int
	// UVerbs is the device's character device in /dev/infiniband, "uverbs0",
	// which a program needs for its queue pairs; "" where it has none.
	UVerbs string
	// Ports by number.
	Ports []Port
}

// Port is a port of a device.
type Port struct {
	// Number counts from 1.
	Number    int
	LinkLayer LinkLayer
	State     PortState
	// Interfaces are the network interfaces that the port serves in the
	// namespace that was asked about, sorted.
	Interfaces []string
	// GIDs are the entries of the port's GID table that are in use, by index:
	// those of every namespace.
	GIDs []GID
	// PKeys is the port's P_Key table; the index is what a queue pair needs.
	// Entries of 0 aren't in use. nil where it couldn't be read, and on RoCE
	// devices that have none.
	PKeys []uint16
}

// GID is an entry of a port's GID table.
type GID struct {
	// Index in the table. It changes when the GID's address is taken away and
	// given back: programs should look it up by value.
	Index int
	// GID is the value: on RoCE an address of Interface (::ffff:a.b.c.d for an
	// IPv4 one), or its link-local address made from the MAC; on InfiniBand the
	// subnet prefix and a port GUID.
	GID netip.Addr
	// Type is "" on InfiniBand, or where it isn't known.
	Type GIDType
	// Interface is the network interface behind the GID, in whichever
	// namespace; "" on InfiniBand.
	Interface string
}

// Devices lists the RDMA devices that a network namespace (nil: the calling
// process's) sees, by name. None, without an error, where the kernel has no RDMA.
//
// The error is an *OpError with the kernel's errno; EPERM: entering another
// namespace takes CAP_SYS_ADMIN.
func (h *Host) Devices(ns *NetNS) ([]Device, error) {
	var devices []sys.Device
	var links []sys.Link
	err := ns.use(func(ns sys.NetNS) (err error) {
		if devices, err = h.kernel.Devices(ns); err != nil {
			return &OpError{Op: "list RDMA devices", Err: err}
		}
		if len(devices) == 0 {
			return nil
		}
		if links, err = h.kernel.Links(ns); err != nil {
			return &OpError{Op: "list network interfaces", Err: err}
		}
		return nil
	})
	if err != nil || len(devices) == 0 {
		return nil, err
	}
	out := make([]Device, 0, len(devices))
	for _, d := range devices {
		device := Device{
			Name:     d.Name,
			NodeGUID: nodeGUID(d.NodeGUID),
			IWARP:    strings.HasPrefix(d.NodeType, "4:"), // RDMA_NODE_RNIC
			NUMANode: d.NUMANode,
			UVerbs:   d.UVerbs,
		}
		for _, p := range d.Ports {
			device.Ports = append(device.Ports, h.port(d.Name, p, links))
		}
		out = append(out, device)
	}
	return out, nil
}

func (h *Host) port(device string, p sys.Port, links []sys.Link) Port {
	out := Port{
		Number:     p.Number,
		LinkLayer:  LinkLayer(p.LinkLayer),
		State:      portState(p.State),
		Interfaces: served(p, links),
	}
	for _, g := range p.GIDs {
		kind := GIDType(g.Type)
		if out.LinkLayer == LinkLayerInfiniBand {
			kind = "" // there sysfs has RoCE v1's name for it
		}
		out.GIDs = append(out.GIDs, GID{Index: g.Index, GID: g.GID, Type: kind, Interface: g.Interface})
	}
	// A table that can't be read costs the P_Keys, not the inventory.
	if pkeys, err := h.kernel.PKeys(device, p.Number); err == nil {
		out.PKeys = pkeys
	}
	return out
}

// nodeGUID leaves out the one of zeros, which is none.
func nodeGUID(s string) string {
	if strings.Trim(s, "0:") == "" {
		return ""
	}
	return s
}

// portState reads sysfs's "4: ACTIVE".
func portState(s string) PortState {
	states := []PortState{'1': PortDown, '2': PortInit, '3': PortArmed, '4': PortActive, '5': PortActiveDefer}
	if len(s) < 2 || s[1] != ':' || int(s[0]) >= len(states) || states[s[0]] == "" {
		return PortUnknown
	}
	return states[s[0]]
}

// served names the links that stand behind a port's GIDs.
func served(p sys.Port, links []sys.Link) []string {
	var names []string
	for _, l := range links {
		if slices.ContainsFunc(p.GIDs, func(g sys.GID) bool { return belongs(g, l) }) {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// belongs tells whether a GID is that of a link. A RoCE port's table names the
// interface of each entry, but those of all namespaces, where another one may
// have the same name: so the GID has to be made from an address of the link
// too. An InfiniBand port's first GID has the port GUID, with which the
// hardware address of its IPoIB interfaces ends.
func belongs(g sys.GID, l sys.Link) bool {
	gid := g.GID.As16()
	if g.Interface == "" {
		guid := [8]byte(gid[8:]) // of zeros: the port has none
		return g.Index == 0 && guid != [8]byte{} && len(l.HardwareAddr) == 20 && [8]byte(l.HardwareAddr[12:]) == guid
	}
	if g.Interface != l.Name {
		return false
	}
	if len(l.HardwareAddr) == 6 && g.GID == linkLocal([6]byte(l.HardwareAddr)) {
		return true
	}
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr().As16() == gid })
}

// linkLocal is the default GID of an Ethernet interface: fe80:: and its
// modified EUI-64.
func linkLocal(mac [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff,
		12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}
