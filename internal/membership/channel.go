package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// followChannel keeps an event channel open and hands its events out until ctx
// ends. The last channel is returned, still open; nil if there is none.
func (t *Table) followChannel(ctx context.Context) *rdma.Channel {
	for {
		channel, err := t.opts.Host.OpenChannel()
		if err == nil {
			t.setChannel(channel, nil)
			err = t.dispatch(ctx, channel)
			if ctx.Err() != nil {
				return channel
			}
			err = fmt.Errorf("rdma_cm's event channel broke and is opened anew: %w", err)
			t.setChannel(nil, err)
			_ = channel.Close() // it is broken; that much was told
		} else {
			if errors.Is(err, rdma.ErrUnavailable) {
				err = unavailableError{err}
			}
			t.setChannel(nil, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.opts.OpenRetry):
		}
	}
}

// unavailableError says what to do.
type unavailableError struct{ error }

func (e unavailableError) Error() string {
	return "kernel module rdma_ucm isn't loaded (no /dev/infiniband/rdma_cm): run modprobe rdma_ucm on the node"
}

func (e unavailableError) Unwrap() error { return e.error }

// setChannel makes a new channel, or the lack of one, known. Whatever was on
// the one before is broken.
func (t *Table) setChannel(channel *rdma.Channel, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	came := channel != nil
	switch before := t.available; {
	case came:
		t.log.Info("Using rdma_cm")
	case before == nil || errors.Is(before, errNotOpened) || before.Error() != err.Error():
		t.log.Error(err, "Can't use rdma_cm; memberships wait")
	}
	t.channel, t.available = channel, err
	if !came {
		for _, p := range t.byID {
			t.breakPort(p, err)
		}
	}
	for _, s := range t.slots {
		s.poke()
	}
	t.touch()
}

// dispatch hands events out until the channel gives no more.
func (t *Table) dispatch(ctx context.Context, channel *rdma.Channel) error {
	for {
		event, err := channel.Next(ctx)
		if err != nil {
			return err
		}
		t.mu.Lock()
		if p := t.byID[event.ID]; p != nil {
			switch event.Type {
			case rdma.MulticastJoined, rdma.MulticastError:
				if s := p.members[groupOf(event.Membership)]; s != nil {
					s.events = append(s.events, event)
					s.poke()
				}
			case rdma.DeviceRemoval:
				t.breakPort(p, fmt.Errorf("the RDMA device of interface %s was removed", p.key.iface))
			case rdma.AddressChange:
				t.breakPort(p, fmt.Errorf("the hardware address of interface %s changed", p.key.iface))
			}
		}
		t.mu.Unlock()
	}
}

// closeAll closes every id, then the channel. Nobody uses them any more.
func (t *Table) closeAll(channel *rdma.Channel) error {
	t.mu.Lock()
	var ids []*rdma.ID
	for id := range t.byID {
		ids = append(ids, id)
	}
	clear(t.byID)
	clear(t.ports)
	t.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, id.Close())
	}
	if channel != nil {
		errs = append(errs, channel.Close())
	}
	return errors.Join(errs...)
}
