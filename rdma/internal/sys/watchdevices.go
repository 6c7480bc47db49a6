package sys

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// rescanEvery is how often devices are looked at unasked, for what the
	// kernel tells nobody: port states and, on InfiniBand, GIDs and P_Keys.
	rescanEvery = 10 * time.Second
	// settling is how long after an event they are looked at again: GID tables
	// follow by a work queue.
	settling = time.Second
)

// watchDevices watches RDMA devices by uevents, by the RDMA netlink's
// notifications where the kernel has them, and by looking again and again.
// Network interfaces come and go on a host of pods without any meaning for
// RDMA: their uevents are a reason to look, not to tell.
func (k kernel) watchDevices() (*watch, error) {
	uevents, err := openNetlink(nil, unix.NETLINK_KOBJECT_UEVENT, ueventGroup)
	if err != nil {
		return nil, err
	}
	w := newWatch(uevents)
	kick := make(chan struct{}, 1)
	tell := func() {
		w.signal()
		offer(kick)
	}
	loops := []func() error{w.receive(uevents, func(message []byte) {
		switch subsystem(message) {
		case "infiniband", "infiniband_verbs":
			tell()
		case "net":
			offer(kick)
		}
	}, tell)}

	notifications, err := openNetlink(nil, unix.NETLINK_RDMA, rdmaGroupNotify)
	switch {
	case err == nil:
		w.sockets = append(w.sockets, notifications)
		loops = append(loops, w.receive(notifications, func(message []byte) {
			if hasMessage(message, aboutRDMA) {
				tell()
			}
		}, tell))
	case !errors.Is(err, unix.EPROTONOSUPPORT): // no RDMA in this kernel, yet
		return nil, errors.Join(err, uevents.file.Close())
	}
	loops = append(loops, w.rescan(k.rescan, kick, k.inventory))
	return w.start(loops...), nil
}

// rescan is a loop that looks every so often, and soon after a kick, and
// signals when it looks different. It looks for the first time when it is
// made, so that nothing is missed that comes after.
func (w *watch) rescan(every time.Duration, kick <-chan struct{}, look func(last inventory) inventory) func() error {
	last := look(inventory{})
	return func() error {
		next := time.Now().Add(every)
		timer := time.NewTimer(every)
		defer timer.Stop()
		for {
			select {
			case <-w.stop:
				return nil
			case <-kick:
				if soon := time.Now().Add(settling); soon.Before(next) {
					next = soon
					timer.Reset(settling)
				}
			case <-timer.C:
				if now := look(last); !now.same(last) {
					last = now
					w.signal()
				}
				next = time.Now().Add(every)
				timer.Reset(every)
			}
		}
	}
}
