// Package membership is the heart of the node agent: it decides which
// memberships a node's pods should have (Plan, a pure function) and makes them
// so (Table), through package rdma.
//
// It knows nothing of Kubernetes: groups, pods and interfaces are given to it,
// and the cluster's side of the leave protocol is an interface, Protocol. It
// doesn't care who asks for a membership either: annotations of pods, a device
// plugin, a DRA driver.
//
//	wanted, verdicts := membership.Plan(groups, pods, node, interfaces, limits)
//	table.Apply(wanted)
//	for _, s := range table.Snapshot() { ... }
package membership

import (
	"cmp"
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// State is where a membership stands; the same words as in the API.
type State string

// The states.
const (
	// Waiting: the port, its address, the group, or the cluster's side of the
	// leave protocol isn't ready yet. Nobody has to do anything.
	Waiting State = "Waiting"
	// Joining: the first join was asked for and has no answer yet.
	Joining State = "Joining"
	// Joined: the port is a member.
	Joined State = "Joined"
	// Failing: the join failed, or the membership was lost. It is tried again.
	Failing State = "Failing"
	// Leaving: it isn't wanted any more and is being left.
	Leaving State = "Leaving"
	// Refused: by policy, or something that the node can't do.
	Refused State = "Refused"
)

// NodeScope is the Scope of the node's own network namespace. Every other scope
// is a sandbox ID.
const NodeScope = ""

// NodeHolder is the holder of a membership that the node has by itself, because
// a group names it. Every other holder is a pod's UID.
const NodeHolder = "node"

// Key names one membership. Address, verbatim or not, and port space are the
// kernel's key, so that two owners of one address never coexist on one id.
type Key struct {
	Scope     string // sandbox ID, or NodeScope
	Interface string
	PortSpace rdma.PortSpace
	Address   netip.Addr
	Verbatim  bool // Address is an MGID, joined as it is
}

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Scope, o.Scope), cmp.Compare(k.Interface, o.Interface),
		k.Address.Compare(o.Address), cmp.Compare(k.PortSpace, o.PortSpace), compareBool(k.Verbatim, o.Verbatim))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// group is what the membership is called on its id.
func (k Key) group() groupID { return groupID{k.Address, k.Verbatim} }

// groupID names a group on an id: one MGID can be joined as an IPv6 address and
// verbatim.
type groupID struct {
	addr     netip.Addr
	verbatim bool
}

func groupOf(m *rdma.Membership) groupID { return groupID{m.Group(), m.Verbatim()} }

func (g groupID) join(id *rdma.ID, opts rdma.JoinOptions) (*rdma.Membership, error) {
	if g.verbatim {
		return id.JoinMGID(g.addr, opts)
	}
	return id.Join(g.addr, opts)
}

func (g groupID) leave(id *rdma.ID) error {
	if g.verbatim {
		return id.LeaveMGID(g.addr)
	}
	return id.Leave(g.addr)
}

// Wanted is a membership that should be.
type Wanted struct {
	Key
	GroupUID, GroupNamespace, GroupName string
	// Generation of the group that is acted on.
	Generation int64
	// Mode is FullMember as soon as one holder is a full member.
	Mode rdma.JoinMode
	// PortFull: another membership of the same MGID on this InfiniBand port is a
	// full one, so that this one has to be: a port never has both join states,
	// which subnet managers have miscounted.
	PortFull bool
	// TrafficClass is the group's, for applications to send with on RoCE.
	TrafficClass uint8
	// NetNS is the path of the namespace; "" the node's own.
	NetNS string
	// BindAddr is the interface's address that the id is bound to.
	BindAddr netip.Addr
	// Index is the interface's: one that was made anew under the same name has
	// another, and none of the old one's memberships.
	Index     int
	Device    string
	Port      int
	PKey      uint16
	LinkLayer rdma.LinkLayer
	// Holders are those that it is for, sorted: UIDs of pods, NodeHolder.
	Holders []string
}
