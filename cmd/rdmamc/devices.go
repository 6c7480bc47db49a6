package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

type deviceJSON struct {
	Name     string     `json:"name"`
	NodeGUID string     `json:"nodeGUID"`
	NUMANode *int       `json:"numaNode,omitempty"` // absent: none
	Ports    []portJSON `json:"ports"`
}

type portJSON struct {
	Number     int      `json:"number"`
	LinkLayer  string   `json:"linkLayer"`
	State      string   `json:"state"`
	Interfaces []string `json:"interfaces"`
}

func devices(args []string, host *rdma.Host, stdout, stderr io.Writer) error {
	flags, output := newFlags("devices", stderr)
	if err := parse(flags, args, output); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: devices takes no argument, got %q", errUsage, flags.Arg(0))
	}
	all, err := host.Devices(nil)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(stderr, "rdmamc: this kernel has no RDMA devices")
	}
	list := make([]deviceJSON, 0, len(all))
	var rows [][]string
	for _, d := range all {
		device := deviceJSON{Name: d.Name, NodeGUID: d.NodeGUID}
		numa := ""
		if d.NUMANode >= 0 {
			device.NUMANode = &d.NUMANode
			numa = strconv.Itoa(d.NUMANode)
		}
		for _, p := range d.Ports {
			device.Ports = append(device.Ports, portJSON{
				Number:     p.Number,
				LinkLayer:  string(p.LinkLayer),
				State:      string(p.State),
				Interfaces: append([]string{}, p.Interfaces...),
			})
			rows = append(rows, []string{
				d.Name, strconv.Itoa(p.Number), string(p.LinkLayer), string(p.State),
				d.NodeGUID, orNone(numa), orNone(strings.Join(p.Interfaces, ",")),
			})
		}
		list = append(list, device)
	}
	return write(stdout, *output, list, []string{"DEVICE", "PORT", "LINK", "STATE", "NODE GUID", "NUMA", "INTERFACES"}, rows)
}
