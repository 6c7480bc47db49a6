package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// itemKind is what an item of a snapshot is, in the order in which they're shown.
type itemKind int

const (
	kindHost itemKind = iota
	kindDevice
	kindPort
	kindGID
	kindInterface
	kindGroup
	kindMembership
)

func (k itemKind) String() string {
	return [...]string{"host", "device", "port", "gid", "interface", "group", "membership"}[k]
}

// itemKey names an item: a GID by its value and interface rather than by its
// index, which may move, and a group by its interface.
type itemKey struct {
	kind itemKind
	name string
}

func compareKeys(a, b itemKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}

// field is one that an item has, such as a port's state.
type field struct{ name, value string }

// fields leaves out the empty ones.
func fields(pairs ...string) []field {
	var out []field
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, field{pairs[i], pairs[i+1]})
		}
	}
	return out
}

// snapshot is what there is at one time.
type snapshot map[itemKey][]field

// allSystems is a group that every interface with IPv4 is in.
var allSystems = netip.AddrFrom4([4]byte{224, 0, 0, 1})

// take lists everything in a network namespace. Without rdma_cm nothing is an
// interface that it can bind to.
func take(host *rdma.Host, ns *rdma.NetNS) (snapshot, error) {
	s := snapshot{}
	devices, err := host.Devices(ns)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		s.addDevice(d)
	}
	interfaces, err := host.Interfaces(ns)
	state := "available"
	if errors.Is(err, rdma.ErrUnavailable) {
		state = "missing"
	} else if err != nil {
		return nil, err
	}
	s[itemKey{kindHost, "rdma_cm"}] = fields("state", state)
	for _, i := range interfaces {
		s[itemKey{kindInterface, i.Name}] = fields("device", i.Device, "port", strconv.Itoa(i.Port),
			"addresses", prefixes(i.Addrs), "pkey", pkeyText(i.PKey))
		if i.LinkLayer != rdma.LinkLayerEthernet {
			continue
		}
		users, err := host.IGMP(ns, i.Name)
		if err != nil {
			return nil, err
		}
		for group, n := range users {
			if group != allSystems {
				s[itemKey{kindGroup, i.Name + " " + group.String()}] = fields("users", strconv.Itoa(n))
			}
		}
	}
	return s, nil
}

func prefixes(addrs []netip.Prefix) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

func (s snapshot) addDevice(d rdma.Device) {
	numa := ""
	if d.NUMANode >= 0 {
		numa = strconv.Itoa(d.NUMANode)
	}
	s[itemKey{kindDevice, d.Name}] = fields("nodeGUID", d.NodeGUID, "numaNode", numa, "uverbs", d.UVerbs)
	for _, p := range d.Ports {
		port := fmt.Sprintf("%s/%d", d.Name, p.Number)
		s[itemKey{kindPort, port}] = fields("linkLayer", string(p.LinkLayer), "state", string(p.State),
			"interfaces", strings.Join(p.Interfaces, ","), "pkeys", strings.Join(pkeys(p.PKeys), ","))
		indices := map[itemKey][]string{} // of one GID in two namespaces, each with an interface of one name
		for _, g := range p.GIDs {
			key := itemKey{kindGID, strings.Join(slices.DeleteFunc([]string{port, g.GID.String(), string(g.Type), g.Interface}, isEmpty), " ")}
			indices[key] = append(indices[key], strconv.Itoa(g.Index))
		}
		for key, index := range indices {
			s[key] = fields("index", strings.Join(index, ","))
		}
	}
}

func isEmpty(s string) bool { return s == "" }

// change is an item that came, went or isn't what it was.
type change struct {
	what string // "present", "added", "changed", "removed"
	key  itemKey
	now  []field
	was  []field // of the fields that have changed
}

// diff is what has changed since an earlier snapshot; nil: it is the first.
// What went comes first, then the rest in the order of kinds and names.
func diff(before, now snapshot) []change {
	var changes []change
	for _, key := range slices.SortedFunc(maps.Keys(before), compareKeys) {
		if _, still := now[key]; !still {
			changes = append(changes, change{what: "removed", key: key})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(now), compareKeys) {
		was, known := before[key]
		switch {
		case before == nil:
			changes = append(changes, change{what: "present", key: key, now: now[key]})
		case !known:
			changes = append(changes, change{what: "added", key: key, now: now[key]})
		case !slices.Equal(was, now[key]):
			changes = append(changes, changed(key, was, now[key]))
		}
	}
	return changes
}

// changed keeps the fields that aren't what they were.
func changed(key itemKey, was, now []field) change {
	c := change{what: "changed", key: key}
	for _, f := range now {
		if !slices.Contains(was, f) {
			c.now = append(c.now, f)
		}
	}
	for _, f := range was {
		if !slices.Contains(now, f) {
			c.was = append(c.was, f)
		}
	}
	return c
}
