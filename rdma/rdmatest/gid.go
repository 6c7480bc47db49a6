package rdmatest

import (
	"net/netip"
	"slices"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// gidEntry is a slot of a RoCE port's GID table, free where link is nil.
type gidEntry struct {
	gid  netip.Addr
	link *link
	// ids that are bound to it. While there are any, the slot of a GID that was
	// deleted isn't used again (GID_TABLE_ENTRY_PENDING_DEL).
	ids     int
	deleted bool
}

func (e gidEntry) valid() bool { return e.link != nil && !e.deleted }

// What follows is called with fabric.mu held.

// table are the valid entries of a port's GID table as sysfs shows them. An
// InfiniBand port has one. What isn't RoCE v2's, sysfs calls RoCE v1's.
func (d *nic) table() []sys.GID {
	if d.ib != nil {
		return []sys.GID{{GID: d.ib.gid(), Type: "IB/RoCE v1"}}
	}
	kind := "RoCE v2"
	if d.protocol != roceV2 {
		kind = "IB/RoCE v1"
	}
	var out []sys.GID
	for i, e := range d.gids {
		if e.valid() {
			out = append(out, sys.GID{Index: i, GID: e.gid, Type: kind, Interface: e.link.name})
		}
	}
	return out
}

// slots is how long the table is.
func (d *nic) slots() int {
	if d.ib != nil {
		return 1
	}
	return len(d.gids)
}

// serve gives an interface GIDs: the default one and one for each address.
func (d *nic) serve(l *link) {
	l.nic = d
	d.addGID(l, linkLocal(l.mac))
	for _, p := range l.addrs {
		d.addGID(l, netip.AddrFrom16(p.Addr().As16()))
	}
}

// addGID takes the first free slot, as ib_cache does.
func (d *nic) addGID(l *link, gid netip.Addr) {
	defer d.node.devicesChanged()
	entry := gidEntry{gid: gid, link: l}
	for i, e := range d.gids {
		if e.link == nil {
			d.gids[i] = entry
			return
		}
	}
	d.gids = append(d.gids, entry)
}

// deleteGID deletes the GID of an interface's address.
func (d *nic) deleteGID(l *link, addr netip.Addr) {
	if i := d.gidIndex(l, addr); i >= 0 {
		d.deleteSlot(i)
	}
}

// deleteGIDs deletes all GIDs of an interface.
func (d *nic) deleteGIDs(l *link) {
	for i, e := range d.gids {
		if e.link == l && e.valid() {
			d.deleteSlot(i)
		}
	}
}

func (d *nic) deleteSlot(i int) {
	d.gids[i].deleted = true
	d.free(i)
	d.node.devicesChanged()
}

// hold and release count the ids that are bound to a GID.
func (d *nic) hold(i int) { d.gids[i].ids++ }

func (d *nic) release(i int) {
	d.gids[i].ids--
	d.free(i)
}

// free makes a slot of which nothing is left free.
func (d *nic) free(i int) {
	if d.gids[i].deleted && d.gids[i].ids == 0 {
		d.gids[i] = gidEntry{}
	}
}

// gidIndex is the slot of an interface's address, -1 where there is none.
func (d *nic) gidIndex(l *link, addr netip.Addr) int {
	gid := netip.AddrFrom16(addr.As16())
	return slices.IndexFunc(d.gids, func(e gidEntry) bool { return e.link == l && e.valid() && e.gid == gid })
}

// guid is a MAC's EUI-64.
func guid(mac [6]byte) uint64 {
	a := linkLocal(mac).As16()
	var g uint64
	for _, b := range a[8:] {
		g = g<<8 | uint64(b)
	}
	return g
}

// linkLocal is the default GID of an Ethernet interface.
func linkLocal(mac [6]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff,
		12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}
