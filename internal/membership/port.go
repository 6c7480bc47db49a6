package membership

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// portKey is what an rdma_cm id is shared by.
type portKey struct {
	scope, iface string
	netns        string
	addr         netip.Addr
	index        int
	space        rdma.PortSpace
}

// port is an id and the memberships on it. It is closed with its last
// membership: an id that is forgotten pins a dead pod's network namespace.
type port struct {
	key portKey

	opening sync.Mutex // held while the id is made
	opened  bool
	id      *rdma.ID
	err     error

	// Guarded by Table.mu.
	refs    int
	broken  error // the id is good for nothing but closing
	members map[groupID]*slot
}

var errNoChannel = errors.New("no event channel")

// openPort returns the port for a membership, with one more reference.
func (t *Table) openPort(key portKey) (*port, error) {
	t.mu.Lock()
	channel := t.channel
	if channel == nil {
		t.mu.Unlock()
		return nil, errNoChannel
	}
	p := t.ports[key]
	if p == nil {
		p = &port{key: key, members: map[groupID]*slot{}}
		t.ports[key] = p
	}
	p.refs++
	t.mu.Unlock()

	p.opening.Lock()
	if !p.opened {
		p.opened = true
		t.call(key.scope, func() { p.id, p.err = bind(t.opts.Host, channel, key) })
		if p.err == nil {
			t.mu.Lock()
			if t.channel == channel {
				t.byID[p.id] = p
			} else {
				t.breakPort(p, errNoChannel)
			}
			t.mu.Unlock()
		}
	}
	err := p.err
	p.opening.Unlock()
	if err != nil {
		t.closePort(p)
		return nil, err
	}
	return p, nil
}

// bind makes an id in a namespace and binds it. The namespace isn't kept open:
// the id itself holds it.
func bind(host *rdma.Host, channel *rdma.Channel, key portKey) (_ *rdma.ID, err error) {
	var ns *rdma.NetNS
	if key.netns != "" {
		if ns, err = host.OpenNetNS(key.netns); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ns.Close()) }()
	}
	id, err := channel.NewID(ns, key.space)
	if err != nil {
		return nil, err
	}
	if err := id.Bind(key.addr); err != nil {
		return nil, fmt.Errorf("interface %s: %w", key.iface, errors.Join(err, id.Close()))
	}
	return id, nil
}

// closePort gives a reference back.
func (t *Table) closePort(p *port) {
	t.mu.Lock()
	p.refs--
	last := p.refs == 0
	if last {
		t.unlist(p)
		if p.id != nil {
			delete(t.byID, p.id)
		}
	}
	t.mu.Unlock()
	if !last || p.id == nil {
		return
	}
	t.closeID(p)
}

// closeID closes a port's id; a second time is harmless.
func (t *Table) closeID(p *port) {
	var err error
	t.call(p.key.scope, func() { err = p.id.Close() })
	if err != nil {
		t.log.Error(err, "Closing an rdma_cm id", "interface", p.key.iface, "scope", p.key.scope)
	}
}

// breakPort gives a port up: everything on it is lost, and joined anew on
// another id. t.mu is held.
func (t *Table) breakPort(p *port, err error) {
	if p.broken != nil {
		return
	}
	p.broken = err
	t.unlist(p)
	for _, s := range p.members {
		s.poke()
	}
}

// unlist makes openPort make another one; t.mu is held.
func (t *Table) unlist(p *port) {
	if t.ports[p.key] == p {
		delete(t.ports, p.key)
	}
}
