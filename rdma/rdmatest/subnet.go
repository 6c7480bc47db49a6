package rdmatest

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// Subnet is a simulated InfiniBand subnet with its subnet manager: the ports
// attached to it, and the multicast groups that the manager keeps by OpenSM's
// rules.
type Subnet struct {
	fabric *Fabric
	name   string

	// Guarded by fabric.mu.
	sa      *sa.SA
	stopped bool // no subnet manager
	ports   []*port
	timeout time.Duration
	faults  []*saFault
}

// SubnetOptions are a subnet's options; the zero value is OpenSM's defaults.
type SubnetOptions struct {
	// Prefix is the upper half of every port's GID; 0: fe80::/64.
	Prefix uint64
	// MLIDs is how many groups the subnet has room for, as its smallest switch
	// decides: 1 to 16,383, which 0 stands for. Broadcast groups count.
	MLIDs int
}

// Partition is one that the subnet manager is configured with, and its IPoIB
// broadcast group, which is there without members. Ports are in it by
// Node.SetPKeys.
type Partition struct {
	// PKey of the partition; the top bit makes no difference.
	PKey uint16
	// Scope of the broadcast group's MGID: 2 link-local, which 0 stands for, 5
	// site-local, 8 organization-local, 14 global.
	Scope uint8
	// QKey of the broadcast group, and so of port space IPoIB; 0: 0x0b1b.
	QKey uint32
	// The rest of the broadcast group's record, of which every group that
	// rdma_cm makes has them.
	SL           uint8
	TrafficClass uint8
	FlowLabel    uint32
}

// defaultSATimeout is how long the kernel waits for the SA's answer to a join
// or a leave (send_join, send_leave).
const defaultSATimeout = 3 * time.Second

// AddSubnet makes a subnet without ports. It has the default partition, 0xffff,
// with a broadcast group of link-local scope.
func (f *Fabric) AddSubnet(name string, o SubnetOptions) *Subnet {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.subnets, func(s *Subnet) bool { return s.name == name }) {
		panic("rdmatest: a second subnet " + name)
	}
	s := &Subnet{
		fabric:  f,
		name:    name,
		sa:      sa.New(sa.Options{SubnetPrefix: o.Prefix, MLIDs: o.MLIDs}),
		timeout: defaultSATimeout,
	}
	s.addPartition(Partition{PKey: defaultPKey})
	f.subnets = append(f.subnets, s)
	return s
}

// Name is the subnet's name.
func (s *Subnet) Name() string { return s.name }

// AddPartition adds a partition, or a broadcast group of another scope to one
// that is there.
func (s *Subnet) AddPartition(p Partition) {
	s.fabric.mu.Lock()
	defer s.fabric.mu.Unlock()
	s.addPartition(p)
}

func (s *Subnet) addPartition(p Partition) {
	if _, err := s.sa.Precreate(sa.Preconfigured{
		PKey: p.PKey, Scope: p.Scope, QKey: p.QKey,
		SL: p.SL, TClass: p.TrafficClass, FlowLabel: p.FlowLabel,
	}); err != nil {
		panic("rdmatest: partition: " + err.Error())
	}
}

// SetTimeout sets how long the kernels of the subnet wait for an answer of the
// subnet manager; without it, 3 s. Requests that are waited for keep theirs.
func (s *Subnet) SetTimeout(d time.Duration) {
	s.fabric.mu.Lock()
	defer s.fabric.mu.Unlock()
	s.timeout = d
}

// FailOver hands the subnet to another subnet manager, which knows the
// partitions and no member of any group. With reregister it asks every port to
// register again: memberships end in MULTICAST_ERROR with ENETRESET, and IPoIB
// joins its broadcast groups anew. Without, nobody is told: the nodes go on
// believing that they are members.
func (s *Subnet) FailOver(reregister bool) {
	s.fabric.mu.Lock()
	defer s.fabric.mu.Unlock()
	s.sa.Restart()
	if reregister {
		s.reregister()
	}
}

// StopSM takes the subnet manager away. Ports that are active stay so, and wait
// in vain for its answers (ETIMEDOUT); others don't become active.
func (s *Subnet) StopSM() {
	s.fabric.mu.Lock()
	defer s.fabric.mu.Unlock()
	s.stopped = true
}

// StartSM starts a subnet manager where there is none: one that knows nothing
// of what was joined, and asks every port to register again (see FailOver).
func (s *Subnet) StartSM() {
	s.fabric.mu.Lock()
	defer s.fabric.mu.Unlock()
	if !s.stopped {
		panic("rdmatest: subnet " + s.name + " has a subnet manager")
	}
	s.stopped = false
	s.sa.Restart()
	s.reregister()
}

// reregister tells all ports of a new subnet manager; fabric.mu is held.
func (s *Subnet) reregister() {
	for _, p := range s.ports {
		switch {
		case p.active:
			p.event(eventClientReregister)
		case p.linkUp:
			p.activate()
		}
	}
}

// SubnetGroup is a multicast group as the subnet manager keeps it.
type SubnetGroup struct {
	MLID uint16
	QKey uint32
	PKey uint16
	// Configured: a partition's broadcast group, which needs no member.
	Configured bool
	// Members are sorted. A group that has none and isn't a configured one is
	// one whose MLID is lost: OpenSM miscounts a port that is a full and a
	// send-only member and leaves as the former.
	Members []SubnetMember
}

// SubnetMember is a port that is a member of a group, on all its interfaces'
// and processes' behalf.
type SubnetMember struct {
	Node, Device string
	// Full and SendOnly are its join states: FullMember, SendOnlyFullMember, or
	// both.
	Full, SendOnly bool
}

// MDB is the subnet manager's table by MGID, IPoIB's broadcast groups
// included: what Fabric.MDB is for RoCE. Empty without a subnet manager.
func (s *Subnet) MDB() map[netip.Addr]SubnetGroup {
	s.fabric.mu.Lock()
	defer s.fabric.mu.Unlock()
	out := map[netip.Addr]SubnetGroup{}
	if s.stopped {
		return out
	}
	for _, g := range s.sa.Groups() {
		group := SubnetGroup{MLID: g.MLID, QKey: g.QKey, PKey: g.PKey, Configured: g.WellKnown}
		for _, p := range s.ports {
			if state := g.Members[p.guid]; state != 0 {
				group.Members = append(group.Members, SubnetMember{
					Node:     p.nic.node.name,
					Device:   p.nic.name,
					Full:     state&sa.FullMember != 0,
					SendOnly: state&sa.SendOnlyFullMember != 0,
				})
			}
		}
		slices.SortFunc(group.Members, func(a, b SubnetMember) int {
			return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device))
		})
		out[g.MGID] = group
	}
	return out
}
