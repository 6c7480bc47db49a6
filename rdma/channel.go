package rdma

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// Channel is an event channel: one open file on /dev/infiniband/rdma_cm, which
// holds ids and, through them, memberships. Take its events with Next: joins
// complete in no other way.
//
// Open it after dropping privileges: the kernel compares the credentials of
// each call with those at opening, and answers EACCES if they changed.
type Channel struct {
	host *Host
	cm   sys.CM

	events chan sys.Event // from the pump, one at a time
	ready  chan struct{}  // local isn't empty
	closed chan struct{}
	pumped chan struct{} // closed when the pump has ended, after pumpErr was set
	// pumpErr is why no more events can be read.
	pumpErr error

	// mu guards what follows. An ID's and a Membership's own locks come before it.
	mu          sync.Mutex
	closing     bool
	cookie      uint64 // the last that was given out; 0 is none
	ids         map[uint64]*ID
	memberships map[uint64]*Membership
	local       []Event // that the kernel knows nothing of
}

// OpenChannel opens an event channel.
//
// ErrUnavailable (and ENOENT): the module rdma_ucm isn't loaded. EACCES or
// EPERM: the device's permissions.
func (h *Host) OpenChannel() (*Channel, error) {
	cm, err := h.openCM()
	if err != nil {
		return nil, err
	}
	c := &Channel{
		host:        h,
		cm:          cm,
		events:      make(chan sys.Event),
		ready:       make(chan struct{}, 1),
		closed:      make(chan struct{}),
		pumped:      make(chan struct{}),
		ids:         map[uint64]*ID{},
		memberships: map[uint64]*Membership{},
	}
	go c.pump()
	return c, nil
}

// pump carries events from the kernel to Next.
func (c *Channel) pump() {
	defer close(c.pumped)
	for {
		event, err := c.cm.GetEvent()
		if err != nil {
			c.pumpErr = err
			return
		}
		select {
		case c.events <- event:
		case <-c.closed:
			return
		}
	}
}

// Next waits for the next event. A queue pair that was given to Join is
// attached here, as part of taking the join's event; if that fails, the event
// is a MulticastError with the queue pair's error.
//
// Errors: ctx's; net.ErrClosed after Close; an *OpError if the kernel gives no
// more events, after which the channel is good for nothing but Close.
func (c *Channel) Next(ctx context.Context) (Event, error) {
	for {
		select {
		case <-c.closed:
			return Event{}, net.ErrClosed
		default:
		}
		select {
		case <-ctx.Done():
			return Event{}, ctx.Err()
		case <-c.closed:
			return Event{}, net.ErrClosed
		case <-c.ready:
			if event, ok := c.takeLocal(); ok {
				return event, nil
			}
		case event := <-c.events:
			if event, ok := c.dispatch(event); ok {
				return event, nil
			}
		case <-c.pumped:
			select {
			case <-c.closed:
				return Event{}, net.ErrClosed
			default:
				return Event{}, &OpError{Op: "get event", Err: c.pumpErr}
			}
		}
	}
}

// Close leaves every group of every id, detaching the queue pairs, and closes
// the file. Closing twice is harmless. The error is that of detaching or closing.
func (c *Channel) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		<-c.pumped
		return nil
	}
	c.closing = true
	ids := c.ids
	c.ids = nil
	c.memberships = nil
	c.local = nil
	c.mu.Unlock()

	close(c.closed)
	var errs []error
	for _, id := range ids {
		errs = append(errs, id.abandon())
	}
	if err := c.cm.Close(); err != nil {
		errs = append(errs, &OpError{Op: "close", Path: sys.CMPath, Err: err})
	}
	<-c.pumped
	return errors.Join(errs...)
}

// dispatch turns a kernel's event into one for the caller; false if there is
// nobody to whom it would mean something.
func (c *Channel) dispatch(e sys.Event) (Event, bool) {
	switch e.Type {
	case sys.EventMulticastJoin, sys.EventMulticastError:
		c.mu.Lock()
		m := c.memberships[e.UID]
		c.mu.Unlock()
		if m == nil {
			return Event{}, false // left meanwhile
		}
		if e.Type == sys.EventMulticastJoin {
			return m.joined(e.UD)
		}
		return m.failed(eventErrno(e.Status))
	case sys.EventDeviceRemoval, sys.EventAddrChange:
		c.mu.Lock()
		id := c.ids[e.UID]
		c.mu.Unlock()
		if id == nil {
			return Event{}, false
		}
		if e.Type == sys.EventDeviceRemoval {
			return Event{Type: DeviceRemoval, ID: id}, true
		}
		return Event{Type: AddressChange, ID: id}, true
	}
	return Event{}, false // of connections, which these ids don't have
}

// eventErrno is the errno of an error event. Kernels have told it with either
// sign, and in one case (ib_init_ah_from_mcmember failed) not at all.
func eventErrno(status int32) syscall.Errno {
	switch {
	case status == 0:
		return syscall.EIO
	case status < 0:
		return syscall.Errno(-int64(status))
	}
	return syscall.Errno(status)
}

// post queues an event that the kernel knows nothing of.
func (c *Channel) post(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	c.local = append(c.local, e)
	c.signal()
}

// signal wakes one Next; c.mu is held.
func (c *Channel) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// takeLocal takes the first local event, of a membership that is still there.
func (c *Channel) takeLocal() (Event, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.local) > 0 {
		e := c.local[0]
		c.local = c.local[1:]
		if c.memberships[e.Membership.cookie] == nil {
			continue // left meanwhile
		}
		if len(c.local) > 0 {
			c.signal()
		}
		return e, true
	}
	return Event{}, false
}

// registerID gives an id the cookie that its events will carry;
// false when the channel is closed.
func (c *Channel) registerID(id *ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.cookie++
	id.cookie = c.cookie
	c.ids[id.cookie] = id
	return true
}

// registerMembership does the same for a membership.
func (c *Channel) registerMembership(m *Membership) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.cookie++
	m.cookie = c.cookie
	c.memberships[m.cookie] = m
	return true
}

// forget ends the delivery of events of these cookies.
func (c *Channel) forget(cookies ...uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cookie := range cookies {
		delete(c.ids, cookie)
		delete(c.memberships, cookie)
	}
}

// names are the RDMA device behind an id, and the interface that
// has addr; "" where they can't be told.
func (h *Host) names(ns sys.NetNS, index uint32, addr netip.Addr) (device, link string) {
	if name, err := h.devices.name(ns, index); err == nil {
		device = name
	}
	links, err := h.kernel.Links(ns)
	if err != nil {
		return device, ""
	}
	for _, l := range links {
		for _, p := range l.Addrs {
			if p.Addr() == addr {
				return device, l.Name
			}
		}
	}
	return device, ""
}
