package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// members are the memberships that "rdmamc watch" holds itself.
type members struct {
	channel *rdma.Channel // nil: none are wanted
	events  chan rdma.Event
	err     error // why there are no more events; set before events is closed
	stop    context.CancelFunc
	done    sync.WaitGroup
	list    []*member
}

// member is one, on one interface.
type member struct {
	link  string
	group netip.Addr
	mgid  bool
	id    *rdma.ID
	held  *rdma.Membership // nil: to be joined
	state []field
}

// newMembers asks for the groups on the interfaces that there are.
func newMembers(ctx context.Context, host *rdma.Host, ns *rdma.NetNS, r watchRequest) (*members, error) {
	m := &members{}
	if len(r.groups)+len(r.mgids) == 0 {
		return m, nil
	}
	interfaces, err := host.Interfaces(ns)
	if err != nil {
		return nil, err
	}
	if m.channel, err = host.OpenChannel(); err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		if r.link != "" && i.Name != r.link {
			continue
		}
		if err := m.on(ns, i, r); err != nil {
			return nil, errors.Join(err, m.channel.Close())
		}
	}
	if len(m.list) == 0 {
		return nil, errors.Join(fmt.Errorf("no RDMA-capable interface %s to join on", r.link), m.channel.Close())
	}
	ctx, m.stop = context.WithCancel(ctx)
	m.events = make(chan rdma.Event)
	m.done.Go(func() { m.read(ctx) })
	return m, nil
}

// on joins on one interface: an id for each family of addresses.
func (m *members) on(ns *rdma.NetNS, i rdma.Interface, r watchRequest) error {
	ids := map[netip.Addr]*rdma.ID{}
	for n, group := range append(append([]netip.Addr{}, r.groups...), r.mgids...) {
		addr := addressFor(i, group)
		id := ids[addr]
		if id == nil {
			var err error
			if id, err = m.channel.NewID(ns, rdma.PortSpaceUDP); err != nil {
				return err
			}
			if err := id.Bind(addr); err != nil {
				return err
			}
			ids[addr] = id
		}
		one := &member{link: i.Name, group: group, mgid: n >= len(r.groups), id: id}
		one.join()
		m.list = append(m.list, one)
	}
	return nil
}

// read passes events on until there are no more.
func (m *members) read(ctx context.Context) {
	defer close(m.events)
	for {
		event, err := m.channel.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				m.err = err
			}
			return
		}
		select {
		case m.events <- event:
		case <-ctx.Done():
			return
		}
	}
}

// join asks for the group; if that fails, it is asked for again by retry. Until
// a group that failed is joined, it is shown as failed.
func (m *member) join() {
	ask := m.id.Join
	if m.mgid {
		ask = m.id.JoinMGID
	}
	held, err := ask(m.group, rdma.JoinOptions{})
	if err != nil {
		m.state = fields("state", "failed", "error", err.Error())
		return
	}
	m.held = held
	if m.state == nil {
		m.state = fields("state", "joining")
	}
}

// leave gives a membership up that is lost.
func (m *member) leave() {
	leave := m.id.Leave
	if m.mgid {
		leave = m.id.LeaveMGID
	}
	if err := leave(m.group); err == nil {
		m.held = nil
	}
}

// take follows an event.
func (m *members) take(e rdma.Event) {
	for _, one := range m.list {
		if one.id != e.ID || (e.Membership != nil && one.held != e.Membership) {
			continue
		}
		switch e.Type {
		case rdma.MulticastJoined:
			p := e.Params
			one.state = fields("state", "joined", "mgid", p.MGID.String(), "mlid", fmt.Sprintf("%#x", p.MLID),
				"qkey", fmt.Sprintf("%#08x", p.QKey), "gidIndex", strconv.Itoa(p.GIDIndex))
		case rdma.MulticastError:
			one.state = fields("state", "failed", "error", e.Err.Error())
			one.leave()
		case rdma.DeviceRemoval:
			one.id, one.state = nil, fields("state", "failed", "error", "the RDMA device is gone")
		case rdma.AddressChange:
		}
	}
}

// retry asks again for what isn't joined.
func (m *members) retry() {
	for _, one := range m.list {
		if one.held == nil && one.id != nil {
			one.join()
		}
	}
}

// add adds the memberships to a snapshot.
func (m *members) add(s snapshot) {
	for _, one := range m.list {
		name := one.link + " " + one.group.String()
		if one.mgid {
			name = one.link + " MGID " + one.group.String()
		}
		s[itemKey{kindMembership, name}] = one.state
	}
}

// close leaves everything.
func (m *members) close() error {
	if m.channel == nil {
		return nil
	}
	m.stop()
	err := m.channel.Close()
	m.done.Wait()
	return err
}
