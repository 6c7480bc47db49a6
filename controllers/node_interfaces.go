package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

const (
	// settledListing is how often interfaces are listed where all is as wanted.
	settledListing = 10 * time.Second
	// firstListing and longestListing bound how often they are where something
	// isn't.
	firstListing   = time.Second
	longestListing = 5 * time.Second
	// watchedListing is how often they are where all is as wanted and changes
	// are told: for what nobody tells.
	watchedListing = time.Minute
	// toldListing is the shortest time between listings of a scope whose changes
	// are told: what brings one change brings some.
	toldListing = 200 * time.Millisecond

	// rdmaGrace is how long a new sandbox without an RDMA interface isn't taken
	// for one that has none: the kernel fills a GID table after the interface
	// has come.
	rdmaGrace = 2 * time.Second

	// What a MulticastNode takes.
	maxNodeDevices      = 64
	maxDeviceInterfaces = 32
)

// scopeInterfaces lists the interfaces of sandboxes and of the node, and keeps
// what it found for a while. A namespace is open only while it is listed.
type scopeInterfaces struct {
	host *rdma.Host
	// nodeNetNS is the path of the node's own network namespace; "" for that
	// of this process.
	nodeNetNS string
	watch     *inventoryWatch // nil: by the clock alone

	scopes map[string]*listedScope

	found        []rdma.Device
	foundAt      time.Time
	foundChanged bool // since, as a watch has told
	// restored are the Ethernet ports whose carrier is back, until renewed.
	restored []membership.Port
}

type listedScope struct {
	membership.Interfaces
	hadRDMA  bool // at some time
	at       time.Time
	interval time.Duration
	watched  bool
	changed  bool // since, as a watch has told
}

func (l *listedScope) due() time.Time {
	if l.changed {
		return l.at.Add(min(l.interval, toldListing))
	}
	return l.at.Add(l.interval)
}

// settled is how often it is listed where all is as wanted.
func (l *listedScope) settled() time.Duration {
	if l.watched {
		return watchedListing
	}
	return settledListing
}

// told takes in what the watches have told.
func (s *scopeInterfaces) told() {
	if s.watch == nil {
		return
	}
	for scope := range s.watch.take() {
		switch scope {
		case deviceScope:
			scope, s.foundChanged = membership.NodeScope, true
		case membership.NodeScope:
			s.foundChanged = true // a carrier is the port's state
		}
		if l := s.scopes[scope]; l != nil {
			l.changed = true
		}
	}
}

// errNoRDMAYet is why a new sandbox doesn't use the node's interfaces.
var errNoRDMAYet = errors.New("the pod's network is new and has no RDMA interface yet")

// errNoRDMANow is why a sandbox that had one doesn't either.
var errNoRDMANow = errors.New("the pod's network has no RDMA interface any more: it is gone, or has lost its address")

// list returns the interfaces of a scope, of a sandbox made at the time created,
// listing them where that is due.
func (s *scopeInterfaces) list(scope, netns string, created, now time.Time) membership.Interfaces {
	found := s.refresh(scope, netns, now)
	switch {
	case scope == membership.NodeScope || found.Err != nil || len(found.RDMA) > 0:
	case s.scopes[scope].hadRDMA:
		found.Err = errNoRDMANow
	case now.Before(created.Add(rdmaGrace)):
		found.Err = errNoRDMAYet
	}
	return found
}

// refresh lists where that is due. An error hides what was found earlier only
// if there was nothing: a namespace that can't be looked into for a moment
// doesn't end memberships.
func (s *scopeInterfaces) refresh(scope, netns string, now time.Time) membership.Interfaces {
	l := s.scopes[scope]
	if l != nil && now.Before(l.due()) {
		return l.Interfaces
	}
	if l == nil {
		l = &listedScope{}
		if s.scopes == nil {
			s.scopes = map[string]*listedScope{}
		}
		s.scopes[scope] = l
	}
	if s.watch != nil { // before the listing, or a change in between went unnoticed
		l.watched = s.watch.watchLinks(scope, netns, now)
	}
	l.changed = false
	found := s.look(scope, netns)
	if found.Err == nil || l.at.IsZero() || l.Err != nil {
		l.Interfaces = found
		l.hadRDMA = l.hadRDMA || len(found.RDMA) > 0
	}
	l.at = now
	return l.Interfaces
}

func (s *scopeInterfaces) look(scope, netns string) (found membership.Interfaces) {
	if scope == membership.NodeScope {
		netns = s.nodeNetNS
	}
	found.Err = inNetNS(s.host, netns, func(ns *rdma.NetNS) (err error) {
		if found.Links, err = s.host.LinkNames(ns); err != nil {
			return err
		}
		found.RDMA, err = s.host.Interfaces(ns)
		return err
	})
	return found
}

// devices are the RDMA devices that the node's own namespace sees, listed anew
// where that is due.
func (s *scopeInterfaces) devices(now time.Time) ([]rdma.Device, error) {
	if now.Before(s.foundAt.Add(s.devicesEvery())) {
		return s.found, nil
	}
	if s.watch != nil {
		s.watch.watchDevices(now)
	}
	found, err := s.listDevices()
	if err != nil {
		return s.found, fmt.Errorf("listing RDMA devices: %w", err)
	}
	s.restored = append(s.restored, restored(s.found, found)...)
	if !samePorts(s.found, found) {
		for _, l := range s.scopes { // what pods' interfaces are on
			l.changed = true
		}
	}
	s.found, s.foundAt, s.foundChanged = found, now, false
	return found, nil
}

// devicesEvery is how often devices are listed, as things are.
func (s *scopeInterfaces) devicesEvery() time.Duration {
	switch {
	case s.foundChanged:
		return toldListing
	case len(s.found) == 0:
		return firstListing
	case s.watch != nil && s.watch.watchesDevices():
		return watchedListing
	}
	return settledListing
}

func (s *scopeInterfaces) listDevices() (devices []rdma.Device, err error) {
	err = inNetNS(s.host, s.nodeNetNS, func(ns *rdma.NetNS) error {
		devices, err = s.host.Devices(ns)
		return err
	})
	return devices, err
}

// restored are the Ethernet ports that weren't active before and are now.
func restored(before, now []rdma.Device) (ports []membership.Port) {
	down := map[membership.Port]bool{}
	for _, d := range before {
		for _, p := range d.Ports {
			down[membership.Port{Device: d.Name, Number: p.Number}] = p.State == rdma.PortDown
		}
	}
	for _, d := range now {
		for _, p := range d.Ports {
			port := membership.Port{Device: d.Name, Number: p.Number}
			if p.LinkLayer == rdma.LinkLayerEthernet && p.State == rdma.PortActive && down[port] {
				ports = append(ports, port)
			}
		}
	}
	return ports
}

// samePorts: the same devices, which programs can use or not as before, with the
// same ports in the same states. GIDs come and go with pods.
func samePorts(a, b []rdma.Device) bool {
	return slices.EqualFunc(a, b, func(a, b rdma.Device) bool {
		return a.Name == b.Name && a.NodeGUID == b.NodeGUID && a.UVerbs == b.UVerbs && slices.EqualFunc(a.Ports, b.Ports, func(a, b rdma.Port) bool {
			return a.Number == b.Number && a.State == b.State && a.LinkLayer == b.LinkLayer
		})
	})
}

// settle tells which of the scopes have something that isn't as wanted, forgets
// those not named, and returns when the next listing is due.
func (s *scopeInterfaces) settle(unsatisfied map[string]bool, now time.Time) time.Duration {
	next := settledListing
	if !s.foundAt.IsZero() {
		next = max(s.foundAt.Add(s.devicesEvery()).Sub(now), 0)
	}
	for scope, l := range s.scopes {
		missing, known := unsatisfied[scope]
		switch {
		case !known:
			delete(s.scopes, scope)
			continue
		case !missing:
			l.interval = l.settled()
		case l.interval == 0 || l.interval >= settledListing:
			l.interval = firstListing
		case l.at.Equal(now): // listed just now, and it didn't help
			l.interval = min(2*l.interval, longestListing)
		}
		next = min(next, l.due().Sub(now))
	}
	if s.watch != nil {
		s.watch.keep(unsatisfied)
	}
	return max(next, 0)
}

// nodeDevices converts the inventory for the MulticastNode.
func nodeDevices(devices []rdma.Device) []v1alpha1.NodeDevice {
	var ports []v1alpha1.NodeDevice
	for _, d := range devices {
		var numa *int32
		if d.NUMANode >= 0 {
			n := int32(d.NUMANode)
			numa = &n
		}
		for _, p := range d.Ports {
			interfaces := slices.Clone(p.Interfaces)
			slices.Sort(interfaces)
			interfaces = slices.Compact(interfaces)
			ports = append(ports, v1alpha1.NodeDevice{
				Name:       d.Name,
				Port:       int32(p.Number),
				LinkLayer:  shownLinkLayer(p.LinkLayer),
				State:      string(p.State),
				NodeGUID:   d.NodeGUID,
				NUMANode:   numa,
				Interfaces: interfaces[:min(len(interfaces), maxDeviceInterfaces)],
			})
		}
	}
	slices.SortFunc(ports, func(a, b v1alpha1.NodeDevice) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(a.Port - b.Port)
	})
	return ports[:min(len(ports), maxNodeDevices)]
}

// shownLinkLayer: sysfs has "Unknown" too (EFA), which the object doesn't take.
func shownLinkLayer(l rdma.LinkLayer) v1alpha1.LinkLayer {
	if l == rdma.LinkLayerEthernet || l == rdma.LinkLayerInfiniBand {
		return v1alpha1.LinkLayer(l)
	}
	return ""
}
