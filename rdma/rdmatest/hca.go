package rdmatest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// AddHCA adds an InfiniBand device with one active port on a subnet, in the
// default partition, and an IPoIB interface on it in the initial namespace;
// netdev "": none, so that rdma_cm can't join. The port is of 4096 bytes and
// 100 Gbit/s.
func (n *Node) AddHCA(s *Subnet, device, netdev string, addrs ...netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	if s.fabric != n.fabric {
		panic("rdmatest: a subnet of another fabric")
	}
	d := n.addDevice(device)
	d.guid = ibGUID(n.number, int(d.index), 0)
	d.ib = &port{
		nic:     d,
		subnet:  s,
		guid:    ibGUID(n.number, int(d.index), 1),
		pkeys:   []uint16{defaultPKey},
		mtu:     sa.MTU4096,
		rate:    sa.Rate100Gbps,
		groups:  map[netip.Addr]*mcastGroup{},
		queries: map[*saQuery]bool{},
	}
	s.ports = append(s.ports, d.ib)
	d.ib.setLink(true)
	if netdev != "" {
		d.ib.newIPoIB(n.addLink("", netdev, addrs), defaultPKey)
	}
}

// AddIPoIBChild makes a child of an IPoIB interface of the initial namespace,
// in the partition of a P_Key, and puts it into the namespace at path: the RDMA
// namespace mode is shared. It works once the port has the P_Key (SetPKeys) and
// the subnet the partition (Subnet.AddPartition).
func (n *Node) AddIPoIBChild(path, netdev, parent string, pkey uint16, addrs ...netip.Prefix) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	p := n.mustIPoIB("", parent)
	p.port.newIPoIB(n.addLink(path, netdev, addrs), pkey)
}

// SetPKeys gives a port another P_Key table, as the subnet manager does: index
// by index, 0 for a free slot, the top bit for full membership. Groups of a
// P_Key that goes, or that gets another index, are lost with ENETRESET; IPoIB
// begins anew.
func (n *Node) SetPKeys(device string, pkeys ...uint16) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	p := n.mustPort(device)
	p.pkeys = slices.Clone(pkeys)
	if p.active {
		p.register()
	}
	p.event(eventPKeyChange)
}

// SetPortSpeed sets a port's MTU in bytes (256 to 4096) and its rate in Gbit/s
// (10, 20, 40, 56, 100, 200, 400). Groups that need more can't be joined on it.
func (n *Node) SetPortSpeed(device string, mtu, gbps int) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	p := n.mustPort(device)
	mtus := map[int]sa.MTU{256: sa.MTU256, 512: sa.MTU512, 1024: sa.MTU1024, 2048: sa.MTU2048, 4096: sa.MTU4096}
	rates := map[int]sa.Rate{
		10: sa.Rate10Gbps, 20: sa.Rate20Gbps, 40: sa.Rate40Gbps, 56: sa.Rate56Gbps,
		100: sa.Rate100Gbps, 200: sa.Rate200Gbps, 400: sa.Rate400Gbps,
	}
	if mtus[mtu] == 0 || rates[gbps] == 0 {
		panic(fmt.Sprintf("rdmatest: no port has %d bytes at %d Gbit/s", mtu, gbps))
	}
	p.mtu, p.rate = mtus[mtu], rates[gbps]
	if p.active {
		p.register()
	}
}

// SetPortLink is a port's cable, pulled or put back.
//
// InfiniBand: memberships are lost with ENETRESET, and the subnet manager takes
// the port out of every group; put back, the port becomes active where there is
// a subnet manager. RoCE: nobody is told, and the switch forgets what the port
// reported; put back, the kernel reports nothing anew.
func (n *Node) SetPortLink(device string, up bool) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	d := n.mustNIC(device)
	if d.ib != nil {
		d.ib.setLink(up)
		return
	}
	d.down = !up
	if !up {
		n.fabric.forget(d)
	}
	n.devicesChanged()
}

// ChangeLID gives an InfiniBand port another LID, as a subnet manager does: its
// memberships are lost with ENETRESET, while the subnet manager keeps them.
func (n *Node) ChangeLID(device string) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	n.mustPort(device).event(eventLIDChange)
}

// CutSM takes the port's way to its subnet manager away, as it is for a moment
// after every event of the port: what has to be asked fails with EAGAIN. The
// returned function gives it back; calling it again does nothing.
func (n *Node) CutSM(device string) (restore func()) {
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	p := n.mustPort(device)
	p.cut = true
	p.learnSM()
	return func() {
		n.fabric.mu.Lock()
		defer n.fabric.mu.Unlock()
		p.cut = false
		p.learnSM()
	}
}

// mustPort is a device's InfiniBand port; fabric.mu is held.
func (n *Node) mustPort(device string) *port {
	d := n.mustNIC(device)
	if d.ib == nil {
		panic("rdmatest: " + device + " isn't an InfiniBand device")
	}
	return d.ib
}

func (d *nic) linkLayer() string {
	if d.ib != nil {
		return "InfiniBand"
	}
	return "Ethernet"
}

func (d *nic) nodeType() string {
	if d.protocol == iWARP {
		return "4: RNIC"
	}
	return "1: CA"
}

func (d *nic) state() string {
	switch {
	case d.ib != nil:
		return d.ib.state()
	case d.down:
		return stateDown
	}
	return stateActive
}
