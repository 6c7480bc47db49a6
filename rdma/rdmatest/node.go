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

// nic is an RDMA device with one port, RoCE where ib is nil.
type nic struct {
	node   *Node
	name   string
	index  uint32 // ibdev index
	uverbs int
	guid   uint64
	gids   []gidEntry // RoCE
	down   bool       // RoCE: no carrier
	ib     *port
}

type namespace struct {
	path  string
	links []*link
}

// link is a network interface.
type link struct {
	ns    *namespace
	index int
	name  string
	mac   [6]byte // Ethernet
	nic   *nic    // nil: not RDMA
	ib    *ipoib  // nil: not IPoIB
	down  bool    // administratively
	addrs []netip.Prefix
	igmp  map[netip.Addr]int // users of each group
	gone  bool
}

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
func (n *Node) AddDevice(device, netdev string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink("", netdev)
	d := n.addDevice(device)
	d.guid = guid(l.mac)
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
	for _, id := range n.ids {
		if id.nic == d {
			id.deviceRemoved()
		}
	}
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

// AddNetNS makes a network namespace with a loopback interface, bound at path.
func (n *Node) AddNetNS(path string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	if n.namespaces[path] != nil {
		panic("rdmatest: a second network namespace " + path)
	}
	n.namespaces[path] = n.newNamespace(path)
}

// AddMACVLAN makes a macvlan on parent, an interface of a NIC in the initial
// namespace, and puts it into the namespace at path.
func (n *Node) AddMACVLAN(path, netdev, parent string, addrs ...netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	p := n.mustLink("", parent)
	l := n.addLink(path, netdev, addrs)
	if p.ib != nil {
		panic("rdmatest: a macvlan on the IPoIB interface " + parent)
	}
	if p.nic != nil {
		p.nic.serve(l)
	}
}

// AddPlainInterface makes an Ethernet interface without RDMA in the namespace
// at path; "" is the initial one.
func (n *Node) AddPlainInterface(path, netdev string, addrs ...netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	n.addLink(path, netdev, addrs)
}

// DeleteInterface deletes an interface. RoCE memberships on it are lost without
// an IGMP leave on the wire and without an event; InfiniBand ones, which are the
// port's, stay until they are left.
func (n *Node) DeleteInterface(path, netdev string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	l.delete()
	l.ns.links = slices.DeleteFunc(l.ns.links, func(x *link) bool { return x == l })
	n.linksChanged(l.ns)
}

// AddAddress gives an interface one more address, and its port a GID for it.
func (n *Node) AddAddress(path, netdev string, addr netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	if slices.Contains(l.addrs, addr) {
		panic(fmt.Sprintf("rdmatest: a second %v on %s", addr, netdev))
	}
	l.addrs = append(l.addrs, addr)
	n.linksChanged(l.ns)
	if l.nic != nil && l.ib == nil {
		l.nic.addGID(l, netip.AddrFrom16(addr.Addr().As16()))
	}
}

// DeleteAddress takes an address away. rdma_cm tells nobody, and memberships
// stay; the slot of its GID is used again only once the ids that are bound to
// it have been destroyed.
func (n *Node) DeleteAddress(path, netdev string, addr netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	l := n.mustLink(path, netdev)
	if !slices.Contains(l.addrs, addr) {
		panic(fmt.Sprintf("rdmatest: no %v on %s", addr, netdev))
	}
	l.addrs = slices.DeleteFunc(l.addrs, func(p netip.Prefix) bool { return p == addr })
	n.linksChanged(l.ns)
	if l.nic != nil && l.ib == nil {
		l.nic.deleteGID(l, addr.Addr())
	}
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
	d := &nic{node: n, name: name, index: uint32(n.nextIndex)}
	for slices.ContainsFunc(n.nics, func(x *nic) bool { return x.uverbs == d.uverbs }) {
		d.uverbs++
	}
	n.nics = append(n.nics, d)
	n.devicesChanged()
	return d
}

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

func (n *Node) addLink(path, name string, addrs []netip.Prefix) *link {
	ns := n.mustNamespace(path)
	if ns.find(name) != nil {
		panic(fmt.Sprintf("rdmatest: a second interface %s in namespace %q", name, path))
	}
	n.nextIndex++
	l := &link{
		ns:    ns,
		index: n.nextIndex,
		name:  name,
		mac:   [6]byte{2, 0, byte(n.number >> 8), byte(n.number), byte(n.nextIndex >> 8), byte(n.nextIndex)},
		addrs: slices.Clone(addrs),
		igmp:  map[netip.Addr]int{},
	}
	ns.links = append(ns.links, l)
	n.linksChanged(ns)
	return l
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

func (ns *namespace) find(name string) *link {
	for _, l := range ns.links {
		if l.name == name {
			return l
		}
	}
	return nil
}

// byAddr is the interface that has an address.
func (ns *namespace) byAddr(addr netip.Addr) *link {
	for _, l := range ns.links {
		for _, p := range l.addrs {
			if p.Addr() == addr {
				return l
			}
		}
	}
	return nil
}

// delete ends an interface: on RoCE its GIDs go, and its memberships silently; on
// InfiniBand these are the port's, and stay.
func (l *link) delete() {
	l.gone = true
	clear(l.igmp)
	switch {
	case l.ib != nil:
		l.ib.remove()
	case l.nic != nil:
		l.nic.deleteGIDs(l)
	}
}

// hardwareAddr is 6 bytes on Ethernet, 20 on IPoIB.
func (l *link) hardwareAddr() []byte {
	if l.ib != nil {
		return l.ib.hardwareAddr()
	}
	return slices.Clone(l.mac[:])
}

// join counts an IGMP user (ip_mc_inc_group).
func (l *link) join(group netip.Addr) {
	l.igmp[group]++
	if l.igmp[group] == 1 && l.nic != nil && !l.down {
		l.nic.node.fabric.report(l.nic, group)
	}
}

// leave counts one less (ip_mc_dec_group).
func (l *link) leave(group netip.Addr) {
	if l.gone || l.igmp[group] == 0 {
		return
	}
	l.igmp[group]--
	if l.igmp[group] > 0 {
		return
	}
	delete(l.igmp, group)
	if l.nic != nil && !l.down {
		l.nic.node.fabric.leave(l.nic, group)
	}
}
