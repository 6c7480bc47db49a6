package rdmatest

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// Fabric is a simulated network: a RoCE v2 one, which is one switch that snoops
// IGMP, with a port for each NIC of each node; and InfiniBand subnets.
type Fabric struct {
	mu      sync.Mutex
	nodes   []*Node
	subnets []*Subnet
	// entries are the switch's: groups that a port reported.
	entries map[netip.Addr]map[*nic]bool
	work    []func() // see run
	working bool
}

// SwitchPort is a port of the switch, named by the NIC at its other end.
type SwitchPort struct{ Node, Device string }

// NewFabric makes a fabric without nodes.
func NewFabric() *Fabric {
	return &Fabric{entries: map[netip.Addr]map[*nic]bool{}}
}

// AddNode adds a machine whose initial network namespace has a loopback
// interface and nothing else. The module rdma_ucm is loaded.
func (f *Fabric) AddNode(name string) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		if n.name == name {
			panic("rdmatest: a second node " + name)
		}
	}
	n := &Node{
		fabric:      f,
		name:        name,
		number:      len(f.nodes) + 1,
		loaded:      true,
		namespaces:  map[string]*namespace{},
		watches:     map[*watch]bool{},
		files:       map[*file]bool{},
		ids:         map[uint32]*cmID{},
		memberships: map[uint32]*membership{},
	}
	n.namespaces[""] = n.newNamespace("")
	n.host = rdma.NewHost(kernel{n})
	f.nodes = append(f.nodes, n)
	return n
}

// MDB is the switch's table: the ports to which it delivers each group, sorted,
// as "bridge mdb show" tells. A group that a NIC left goes at once; one whose
// interface went without leaving stays, since nothing on the wire told the
// switch (a real one forgets it after some minutes; this one never does).
func (f *Fabric) MDB() map[netip.Addr][]SwitchPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[netip.Addr][]SwitchPort{}
	for group, ports := range f.entries {
		for port := range ports {
			out[group] = append(out[group], SwitchPort{Node: port.node.name, Device: port.name})
		}
		slices.SortFunc(out[group], func(a, b SwitchPort) int {
			return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device))
		})
	}
	return out
}

// report is an IGMP membership report on the wire; f.mu is held.
func (f *Fabric) report(port *nic, group netip.Addr) {
	if port.down {
		return
	}
	if f.entries[group] == nil {
		f.entries[group] = map[*nic]bool{}
	}
	f.entries[group][port] = true
}

// leave is an IGMP leave on the wire, which the switch follows by asking for
// other members on the port; f.mu is held.
func (f *Fabric) leave(port *nic, group netip.Addr) {
	if port.node.memberOn(port, group) {
		return
	}
	delete(f.entries[group], port)
	if len(f.entries[group]) == 0 {
		delete(f.entries, group)
	}
}

// forget is a port of the switch that lost its carrier; f.mu is held.
func (f *Fabric) forget(port *nic) {
	for group, ports := range f.entries {
		delete(ports, port)
		if len(ports) == 0 {
			delete(f.entries, group)
		}
	}
}

// run does work, after whatever is being done: what the kernel has work queues
// for, in the order in which it was asked for. f.mu is held.
func (f *Fabric) run(work func()) {
	f.work = append(f.work, work)
	if f.working {
		return
	}
	f.working = true
	for len(f.work) > 0 {
		next := f.work[0]
		f.work = f.work[1:]
		next()
	}
	f.working = false
}
