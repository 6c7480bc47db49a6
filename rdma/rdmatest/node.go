package rdmatest

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// Node is a simulated machine.
type Node struct {
	fabric *Fabric
	host   *rdma.Host
	name   string
	number int

	// Guarded by fabric.mu.
	loaded     bool
	exclusive  bool // RDMA namespace mode; else shared
	nextIndex  int
	nics       []*nic
	namespaces map[string]*namespace // by path; "" is the initial one
	handles    int                   // open on namespaces
	watches    map[*watch]bool       // open
	faults     []*Fault
	// The tables of ucma.c: global, so that a handle of another file is told
	// from one that doesn't exist.
	files       map[*file]bool
	ids         map[uint32]*cmID
	memberships map[uint32]*membership
}

// nic is an RDMA device with one port, on Ethernet where ib is nil.
type nic struct {
	node     *Node
	name     string
	index    uint32 // ibdev index
	uverbs   int
	guid     uint64
	ns       *namespace // its own in exclusive mode
	protocol protocol
	gids     []gidEntry // Ethernet
	down     bool       // Ethernet: no carrier
	ib       *port
}

// protocol is what a device speaks on Ethernet.
type protocol int

const (
	roceV2 protocol = iota
	roceV1
	iWARP
)

// Host is what the code under test gets in place of rdma.Local.
func (n *Node) Host() *rdma.Host { return n.host }

// Name is the node's name.
func (n *Node) Name() string { return n.name }

// AddNIC adds an Ethernet interface to the initial namespace and a RoCE v2
// device with one port on it.
func (n *Node) AddNIC(device, netdev string, addrs ...netip.Prefix) {
	n.AddPlainInterface("", netdev, addrs...)
	n.AddDevice(device, netdev)
}

// AddDevice puts a RoCE v2 device on an interface of the initial namespace, as
// "rdma link add" does.
func (n *Node) AddDevice(device, netdev string) { n.addEthernet(device, netdev, roceV2) }

// AddRoCEv1Device puts a device on an interface of the initial namespace that
// speaks RoCE v1 alone. rdma_cm's multicast is broken there: a join makes no
// IGMP membership, and its leave takes one away, whosever it is.
func (n *Node) AddRoCEv1Device(device, netdev string) { n.addEthernet(device, netdev, roceV1) }

// AddIWARPDevice puts an iWARP device on an interface of the initial namespace.
// It has no multicast: joins give ENOSYS.
func (n *Node) AddIWARPDevice(device, netdev string) { n.addEthernet(device, netdev, iWARP) }

func (n *Node) addEthernet(device, netdev string, p protocol) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink("", netdev)
	d := n.addDevice(device)
	d.guid, d.protocol = guid(l.mac), p
	d.serve(l)
}

// RemoveDevice takes a device away: every id on it gets DEVICE_REMOVAL and loses
// its memberships. A RoCE device goes from under its interfaces, as "rdma link
// delete" does it; with an InfiniBand one its IPoIB interfaces go, and the
// subnet manager takes its port out of every group.
func (n *Node) RemoveDevice(device string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	d := n.mustNIC(device)
	n.endIDs(d)
	if d.ib != nil {
		d.ib.remove()
	}
	for _, ns := range n.namespaces {
		for _, l := range ns.links {
			if l.nic == d {
				l.nic = nil
			}
		}
	}
	n.nics = slices.DeleteFunc(n.nics, func(x *nic) bool { return x == d })
	n.devicesChanged()
}

// SetExclusiveNetNS puts the node's devices into the exclusive namespace mode, as
// "rdma system set netns exclusive" does: each is seen in one network namespace,
// at first the initial one, and can be bound to there alone. Without it a device
// is shared by all.
func (n *Node) SetExclusiveNetNS() {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	n.exclusive = true
	n.devicesChanged()
}

// MoveDevice moves a device on Ethernet to the namespace at path, as "rdma dev
// set netns" does in exclusive mode: every id on it gets DEVICE_REMOVAL and loses
// its memberships. Its interfaces stay where they are.
func (n *Node) MoveDevice(device, path string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	d := n.mustNIC(device)
	if !n.exclusive || d.ib != nil {
		panic("rdmatest: " + device + " can't be moved to another namespace")
	}
	n.endIDs(d)
	d.ns = n.mustNamespace(path)
	n.devicesChanged()
}

// AddNetNS makes a network namespace with a loopback interface, bound at path.
func (n *Node) AddNetNS(path string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	if n.namespaces[path] != nil {
		panic("rdmatest: a second network namespace " + path)
	}
	n.namespaces[path] = n.newNamespace(path)
}

// DeleteNetNS is the end of a pod's network: its interfaces are deleted (see
// DeleteInterface) and path is gone. Ids in it stay until they are closed.
func (n *Node) DeleteNetNS(path string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	ns := n.mustNamespace(path)
	if path == "" {
		panic("rdmatest: the initial network namespace can't be deleted")
	}
	for _, l := range ns.links {
		l.delete()
	}
	ns.links = nil
	n.linksChanged(ns)
	delete(n.namespaces, path)
	for _, d := range n.nics {
		if d.ns == ns { // back to where it came from
			n.endIDs(d)
			d.ns = n.namespaces[""]
			n.devicesChanged()
		}
	}
}

// UnloadUCM takes the module rdma_ucm, and /dev/infiniband/rdma_cm with it,
// away. EBUSY while the device is open: the kernel refuses too.
func (n *Node) UnloadUCM() error {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	if len(n.files) > 0 {
		return fmt.Errorf("rdmatest: module rdma_ucm is in use by %d open files: %w", len(n.files), syscall.EBUSY)
	}
	n.loaded = false
	return nil
}

// LoadUCM loads the module rdma_ucm.
func (n *Node) LoadUCM() {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	n.loaded = true
}

// What follows is called with fabric.mu held.

func (n *Node) newNamespace(path string) *namespace {
	ns := &namespace{path: path}
	n.nextIndex++
	ns.links = []*link{{
		ns:    ns,
		index: n.nextIndex,
		name:  loopback,
		addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")},
		igmp:  map[netip.Addr]int{},
	}}
	return ns
}

const loopback = "lo"

// addDevice adds a device without ports.
func (n *Node) addDevice(name string) *nic {
	if n.findNIC(name) != nil {
		panic("rdmatest: a second device " + name)
	}
	n.nextIndex++
	d := &nic{node: n, name: name, index: uint32(n.nextIndex), ns: n.namespaces[""]}
	for slices.ContainsFunc(n.nics, func(x *nic) bool { return x.uverbs == d.uverbs }) {
		d.uverbs++
	}
	n.nics = append(n.nics, d)
	n.devicesChanged()
	return d
}

// endIDs ends what the ids on a device hold there.
func (n *Node) endIDs(d *nic) {
	for _, id := range n.ids {
		if id.nic == d {
			id.deviceRemoved()
		}
	}
}

// visible: can the device be seen and bound to in a namespace?
func (d *nic) visible(ns *namespace) bool { return !d.node.exclusive || d.ns == ns }

func (n *Node) mustNIC(name string) *nic {
	d := n.findNIC(name)
	if d == nil {
		panic("rdmatest: no device " + name)
	}
	return d
}

func (n *Node) mustNamespace(path string) *namespace {
	ns := n.namespaces[path]
	if ns == nil {
		panic("rdmatest: no network namespace " + path)
	}
	return ns
}

func (n *Node) mustLink(path, name string) *link {
	l := n.mustNamespace(path).find(name)
	if l == nil {
		panic(fmt.Sprintf("rdmatest: no interface %s in namespace %q", name, path))
	}
	return l
}

func (n *Node) findNIC(name string) *nic {
	for _, d := range n.nics {
		if d.name == name {
			return d
		}
	}
	return nil
}

// memberOn tells whether any interface on a NIC is a member, in whichever
// namespace.
func (n *Node) memberOn(d *nic, group netip.Addr) bool {
	for _, ns := range n.namespaces {
		for _, l := range ns.links {
			if l.nic == d && !l.down && l.igmp[group] > 0 {
				return true
			}
		}
	}
	return false
}
