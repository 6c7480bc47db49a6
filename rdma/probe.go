package rdma

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Reason is a word for what keeps multicast from working. The words are
// stable: they can be stored, compared and shown.
type Reason string

// The reasons.
const (
	// ReasonNoRDMACM: the kernel has no rdma_cm, because the module rdma_ucm
	// isn't loaded (ErrUnavailable). Nothing can be joined on this host.
	ReasonNoRDMACM Reason = "NoRDMACM"
	// ReasonNoVerbs: the device has no uverbs node: the module ib_uverbs isn't
	// loaded, or its driver isn't for user space. Groups can be joined, but no
	// program can attach a queue pair to receive anything.
	ReasonNoVerbs Reason = "NoVerbs"
	// ReasonIWARP: the device speaks iWARP, which has no multicast.
	ReasonIWARP Reason = "IWARP"
	// ReasonRoCEv1: the port, or what rdma_cm uses on it, is RoCE v1. A join
	// there sends no IGMP, yet the leave takes back an IGMP membership that it
	// never made: somebody else's. Don't join.
	ReasonRoCEv1 Reason = "RoCEv1"
	// ReasonNoIPoIB: the InfiniBand port has no IPoIB interface with an address
	// in the network namespace: nothing to bind to.
	ReasonNoIPoIB Reason = "NoIPoIB"
	// ReasonNoInterface: the Ethernet port has no interface with an address in
	// the network namespace, though it may have one in another; of SelfTest:
	// rdma_cm can't bind to the interface.
	ReasonNoInterface Reason = "NoInterface"
	// ReasonPortNotActive: the port is down, or no subnet manager has brought it
	// up. Temporary.
	ReasonPortNotActive Reason = "PortNotActive"
	// ReasonNotReady: IPoIB hasn't joined its broadcast group yet
	// (EADDRNOTAVAIL), or the subnet manager can't be reached yet (EAGAIN), or
	// threw the port out this moment (ENETRESET). Temporary.
	ReasonNotReady Reason = "NotReady"
	// ReasonNoAnswer: a join had no answer in time (ETIMEDOUT). Temporary.
	ReasonNoAnswer Reason = "NoAnswer"
	// ReasonWrongGroupLeft: the kernel leaves another group than it is told to,
	// as 5.10 to 5.15.21 do on RoCE: whoever leaves goes on receiving, and the
	// switch goes on delivering.
	ReasonWrongGroupLeft Reason = "WrongGroupLeft"
	// ReasonSelfTestFailed: the self-test went in another way than it should;
	// the problem's Err tells how.
	ReasonSelfTestFailed Reason = "SelfTestFailed"
)

// Temporary reports whether a problem with this reason may go away by itself,
// so that it pays to look again.
func (r Reason) Temporary() bool {
	return r == ReasonPortNotActive || r == ReasonNotReady || r == ReasonNoAnswer
}

// explanation is the reason in a few words; "" where the cause says it all.
func (r Reason) explanation() string {
	switch r {
	case ReasonNoVerbs:
		return "no uverbs device, so that no program can attach to a group"
	case ReasonIWARP:
		return "iWARP has no multicast"
	case ReasonRoCEv1:
		return "RoCE v1, where leaving a group takes away somebody else's IGMP membership"
	case ReasonNoIPoIB:
		return "no IPoIB interface with an address in this network namespace"
	case ReasonNoInterface:
		return "no interface that rdma_cm can bind to in this network namespace"
	case ReasonPortNotActive:
		return "the port isn't active"
	case ReasonNotReady:
		return "not ready yet"
	case ReasonNoAnswer:
		return "no answer to a join"
	case ReasonWrongGroupLeft:
		return "this kernel leaves another group than it is told to (5.10 to 5.15.21 do)"
	case ReasonSelfTestFailed:
		return "the self-test failed"
	}
	return ""
}

// Problem is something that keeps multicast from working on a host, a device, a
// port or an interface. It is an error; errors.Is finds its cause.
type Problem struct {
	Reason Reason
	// Device that it is about; "": the whole host, or it isn't known.
	Device string
	// Port of the device; 0: all of them.
	Port int
	// Interface on the port; "": all of them.
	Interface string
	// Err is the cause; nil where the reason says it all.
	Err error
}

// Error says where, what and why, without the Reason's word.
func (p *Problem) Error() string {
	var parts []string
	where := p.Interface
	if p.Device != "" {
		device := p.Device
		if p.Port > 0 {
			device += " port " + strconv.Itoa(p.Port)
		}
		if where == "" {
			where = device
		} else {
			where += " (" + device + ")"
		}
	}
	if where != "" {
		parts = append(parts, where)
	}
	if text := p.Reason.explanation(); text != "" {
		parts = append(parts, text)
	}
	if p.Err != nil {
		parts = append(parts, strings.TrimPrefix(p.Err.Error(), "rdma: "))
	}
	return "rdma: " + strings.Join(parts, ": ")
}

func (p *Problem) Unwrap() error { return p.Err }

// Probe looks, without joining anything, for what keeps multicast from working
// in a network namespace (nil: the calling process's): on the host, on the
// devices that the namespace sees, their ports and interfaces. None: nothing
// was found; SelfTest tries it out. The reasons are NoRDMACM, NoVerbs, IWARP,
// RoCEv1, NoIPoIB, NoInterface and PortNotActive.
//
// The error is that of Devices or Interfaces, but for ErrUnavailable, which is
// a problem.
func (h *Host) Probe(ns *NetNS) ([]*Problem, error) {
	devices, err := h.Devices(ns)
	if err != nil {
		return nil, err
	}
	interfaces, err := h.Interfaces(ns)
	if errors.Is(err, ErrUnavailable) {
		problems := probeDevices(devices, nil)
		return append([]*Problem{{Reason: ReasonNoRDMACM, Err: err}}, problems...), nil
	}
	if err != nil {
		return nil, err
	}
	return probeDevices(devices, func(device string, port int) bool {
		return slices.ContainsFunc(interfaces, func(i Interface) bool { return i.Device == device && i.Port == port })
	}), nil
}

// probeDevices looks at devices; served tells whether an interface is bound to
// a port, nil where that isn't known.
func probeDevices(devices []Device, served func(device string, port int) bool) []*Problem {
	var problems []*Problem
	for _, d := range devices {
		if d.UVerbs == "" {
			problems = append(problems, &Problem{Reason: ReasonNoVerbs, Device: d.Name})
		}
		for _, p := range d.Ports {
			found := func(r Reason) {
				problems = append(problems, &Problem{Reason: r, Device: d.Name, Port: p.Number})
			}
			switch {
			case d.IWARP:
				found(ReasonIWARP)
			case p.LinkLayer == LinkLayerInfiniBand:
				if served != nil && !served(d.Name, p.Number) {
					found(ReasonNoIPoIB)
				}
			case onlyRoCEv1(p.GIDs):
				found(ReasonRoCEv1)
			case served != nil && !served(d.Name, p.Number):
				found(ReasonNoInterface)
			}
			if p.State != PortActive && p.State != PortActiveDefer {
				found(ReasonPortNotActive)
			}
		}
	}
	return problems
}

// onlyRoCEv1 tells whether an Ethernet port has GIDs of known types, none of
// them RoCE v2.
func onlyRoCEv1(gids []GID) bool {
	typed := slices.ContainsFunc(gids, func(g GID) bool { return g.Type != "" })
	return typed && !slices.ContainsFunc(gids, func(g GID) bool { return g.Type == RoCEv2 })
}
