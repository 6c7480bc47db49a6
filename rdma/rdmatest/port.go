package rdmatest

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// port is the InfiniBand port of a device, with what the kernel keeps about it.
type port struct {
	nic    *nic
	subnet *Subnet
	guid   uint64
	pkeys  []uint16 // by index
	mtu    sa.MTU
	rate   sa.Rate

	linkUp bool
	active bool // the subnet manager has made it so
	// smKnown: the kernel has an address handle of the subnet manager (sm_ah of
	// sa_query.c). cut keeps it from getting one.
	smKnown, cut bool

	groups  map[netip.Addr]*mcastGroup
	queries map[*saQuery]bool // under way
	ipoib   []*ipoib          // the interfaces on it, parent and children
}

// portEvent is an asynchronous event of a port (enum ib_event_type).
type portEvent int

const (
	eventPortError portEvent = iota
	eventPortActive
	eventLIDChange
	eventPKeyChange
	eventClientReregister
)

// What follows is called with fabric.mu held.

// state is the port's, as sysfs prints it.
func (p *port) state() string {
	switch {
	case p.active:
		return stateActive
	case p.linkUp:
		return "2: INIT"
	}
	return stateDown
}

const (
	stateDown   = "1: DOWN"
	stateActive = "4: ACTIVE"
)

func (p *port) gid() netip.Addr { return p.subnet.sa.PortGID(p.guid) }

// pkeyIndex finds a P_Key, a full member's before a limited one's
// (ib_find_pkey).
func (p *port) pkeyIndex(pkey uint16) (int, bool) {
	limited := -1
	for i, k := range p.pkeys {
		switch {
		case k&0x7fff != pkey&0x7fff:
		case k&0x8000 != 0:
			return i, true
		case limited < 0:
			limited = i
		}
	}
	return limited, limited >= 0
}

// activate is the subnet manager's work on a port whose link is up.
func (p *port) activate() {
	if p.subnet.stopped {
		return
	}
	p.register()
	p.active = true
	p.event(eventPortActive)
}

// register lets the subnet manager know what the port is like.
func (p *port) register() {
	p.subnet.sa.SetPort(sa.Port{GUID: p.guid, MTU: p.mtu, Rate: p.rate, PKeys: p.pkeys})
}

// setLink is the port's cable. The subnet manager takes a port that has gone
// out of every group.
func (p *port) setLink(up bool) {
	if p.linkUp == up {
		return
	}
	p.linkUp = up
	if up {
		p.nic.node.devicesChanged()
		p.activate()
		return
	}
	p.active = false
	p.subnet.sa.RemovePort(p.guid)
	p.event(eventPortError)
}

// event tells the kernel's parts, in the order in which they registered:
// sa_query.c, multicast.c, IPoIB.
func (p *port) event(e portEvent) {
	p.nic.node.devicesChanged()
	p.subnet.fabric.run(func() {
		if e != eventPortActive {
			p.groupsEvent(e == eventPKeyChange)
		}
		p.learnSM()
		for _, i := range p.ipoib {
			p.subnet.fabric.run(i.flush)
		}
	})
}

// learnSM is update_sm_ah.
func (p *port) learnSM() { p.smKnown = p.active && !p.cut }

// remove ends everything on the port: its device goes.
func (p *port) remove() {
	for _, i := range slices.Clone(p.ipoib) {
		i.link.delete()
		i.link.ns.links = slices.DeleteFunc(i.link.ns.links, func(l *link) bool { return l == i.link })
		p.nic.node.linksChanged(i.link.ns)
	}
	for q := range p.queries {
		q.cancel()
	}
	p.linkUp, p.active, p.smKnown = false, false, false
	p.subnet.sa.RemovePort(p.guid)
	p.subnet.ports = slices.DeleteFunc(p.subnet.ports, func(x *port) bool { return x == p })
}

// ibGUID is a GUID of a device: 0 the node's, 1 that of its port.
func ibGUID(node, device, n int) uint64 {
	return binary.BigEndian.Uint64([]byte{0x00, 0x02, 0xc9, 0x03, byte(node >> 8), byte(node), byte(device), byte(n)})
}
