package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

type deviceJSON struct {
	Name     string     `json:"name"`
	NodeGUID string     `json:"nodeGUID,omitempty"`
	IWARP    bool       `json:"iwarp,omitempty"`
	NUMANode *int       `json:"numaNode,omitempty"` // absent: none
	UVerbs   string     `json:"uverbs,omitempty"`
	Ports    []portJSON `json:"ports"`
}

type portJSON struct {
	Number     int       `json:"number"`
	LinkLayer  string    `json:"linkLayer"`
	State      string    `json:"state"`
	Interfaces []string  `json:"interfaces"`
	PKeys      []string  `json:"pkeys,omitempty"` // by index
	GIDs       []gidJSON `json:"gids"`
}

type gidJSON struct {
	Index     int    `json:"index"`
	GID       string `json:"gid"`
	Type      string `json:"type,omitempty"`
	Interface string `json:"interface,omitempty"`
}

func devices(args []string, host *rdma.Host, stdout, stderr io.Writer) (err error) {
	flags := newFlags("devices", stderr)
	verbose := flags.BoolP("verbose", "v", false, "show GIDs and P_Keys too")
	if err := flags.parse(args); err != nil {
		return err
	}
	if err := flags.noArguments("devices"); err != nil {
		return err
	}
	ns, err := flags.openNetNS(host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNetNS(ns)) }()
	all, err := host.Devices(ns)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(stderr, "rdmamc: this kernel has no RDMA devices")
	}
	list := make([]deviceJSON, 0, len(all))
	for _, d := range all {
		list = append(list, deviceOf(d))
	}
	tables := []table{portTable(list, *verbose)}
	if *verbose {
		tables = append(tables, gidTable(list))
	}
	return write(stdout, *flags.output, list, tables...)
}

func deviceOf(d rdma.Device) deviceJSON {
	device := deviceJSON{Name: d.Name, NodeGUID: d.NodeGUID, IWARP: d.IWARP, UVerbs: d.UVerbs, Ports: []portJSON{}}
	if d.NUMANode >= 0 {
		device.NUMANode = &d.NUMANode
	}
	for _, p := range d.Ports {
		port := portJSON{
			Number:     p.Number,
			LinkLayer:  string(p.LinkLayer),
			State:      string(p.State),
			Interfaces: append([]string{}, p.Interfaces...),
			PKeys:      pkeys(p.PKeys),
			GIDs:       []gidJSON{},
		}
		for _, g := range p.GIDs {
			port.GIDs = append(port.GIDs, gidJSON{Index: g.Index, GID: g.GID.String(), Type: string(g.Type), Interface: g.Interface})
		}
		device.Ports = append(device.Ports, port)
	}
	return device
}

// pkeys writes a P_Key table without the free slots at its end: most of 128.
func pkeys(table []uint16) []string {
	last := len(table)
	for last > 0 && table[last-1] == 0 {
		last--
	}
	var out []string
	for _, pkey := range table[:last] {
		out = append(out, pkeyText(pkey))
	}
	return out
}

func pkeyText(pkey uint16) string { return fmt.Sprintf("%#04x", pkey) }

func portTable(list []deviceJSON, verbose bool) table {
	t := table{header: []string{"DEVICE", "PORT", "LINK", "STATE", "NODE GUID", "NUMA", "UVERBS", "INTERFACES"}}
	if verbose {
		t.header = append(t.header, "P_KEYS")
	}
	for _, d := range list {
		numa := ""
		if d.NUMANode != nil {
			numa = strconv.Itoa(*d.NUMANode)
		}
		for _, p := range d.Ports {
			link := p.LinkLayer
			if d.IWARP {
				link = "iWARP"
			}
			row := []string{
				d.Name, strconv.Itoa(p.Number), link, p.State, orNone(d.NodeGUID), orNone(numa), orNone(d.UVerbs),
				orNone(strings.Join(p.Interfaces, ",")),
			}
			if verbose {
				row = append(row, orNone(strings.Join(p.PKeys, ",")))
			}
			t.rows = append(t.rows, row)
		}
	}
	return t
}

func gidTable(list []deviceJSON) table {
	t := table{header: []string{"DEVICE", "PORT", "INDEX", "GID", "TYPE", "INTERFACE"}}
	for _, d := range list {
		for _, p := range d.Ports {
			for _, g := range p.GIDs {
				t.rows = append(t.rows, []string{d.Name, strconv.Itoa(p.Number), strconv.Itoa(g.Index), g.GID, orNone(g.Type), orNone(g.Interface)})
			}
		}
	}
	return t
}
