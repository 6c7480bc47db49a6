// Package conformance has the scenarios that the simulated kernel and a real
// one must both pass, so that what is tested against the simulation holds.
//
// A scenario that only one side can do is passed to Run by that side's test;
// hack/conformance compares the names of what ran on each with a reviewed list.
package conformance

import (
	"net/netip"
	"os"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// Machine is what scenarios run on: two RoCE v2 NICs on one snooping switch.
//
//	device  interface  addresses
//	rxe0    rdma0      10.0.0.2/24 fd00::2/64
//	rxe1    rdma1      10.0.0.3/24 fd00::3/64
//
// Its methods fail the test where they can't do what they're for.
type Machine interface {
	Host() *rdma.Host
	Kernel() sys.Kernel

	// AddNetNS makes a network namespace for the time of the test.
	AddNetNS(t *testing.T) (path string)
	// AddMACVLAN makes a macvlan on an interface of the initial namespace, in
	// the namespace at path ("": the initial one), for the time of the test.
	AddMACVLAN(t *testing.T, path, name, parent string, addr netip.Prefix)
	// AddPlain makes an interface without RDMA, for the time of the test.
	AddPlain(t *testing.T, path, name string, addr netip.Prefix)
	DeleteInterface(t *testing.T, path, name string)
	// AddAddress and DeleteAddress change the addresses of an interface.
	AddAddress(t *testing.T, path, name string, addr netip.Prefix)
	DeleteAddress(t *testing.T, path, name string, addr netip.Prefix)
	AddDevice(t *testing.T, device, netdev string)
	RemoveDevice(t *testing.T, device string)
	// UnloadUCM takes the module rdma_ucm away; an error if it is in use.
	UnloadUCM() error
	LoadUCM(t *testing.T)

	// IGMP are the users of each group on an interface.
	IGMP(t *testing.T, path, name string) map[netip.Addr]int
	// Switch are the devices to whose ports the switch delivers a group, sorted.
	Switch(t *testing.T, group netip.Addr) []string
}

// The machine's NICs.
const (
	device0, link0 = "rxe0", "rdma0"
	device1, link1 = "rxe1", "rdma1"
)

func addr0() netip.Addr { return netip.MustParseAddr("10.0.0.2") }
func addr1() netip.Addr { return netip.MustParseAddr("10.0.0.3") }

// Scenario is one thing that holds.
type Scenario struct {
	// Name is a sentence of what holds.
	Name string
	Run  func(t *testing.T, m Machine)
}

// Scenarios are those that both sides run.
func Scenarios() []Scenario {
	var all []Scenario
	for _, some := range [][]Scenario{leaving(), cancelling(), closing(), joining(), refusals(), namespaces(), wire(), inventory(), removal(), addresses(), probing(), seam(), seamTables()} {
		all = append(all, some...)
	}
	return all
}

// OutEnv names the environment variable with the file to which the names of
// the scenarios that ran and passed are appended, one a line.
const OutEnv = "CONFORMANCE_OUT"

// Run runs scenarios, each on a fresh machine.
func Run(t *testing.T, fresh func(t *testing.T) Machine, scenarios []Scenario) {
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Cleanup(func() {
				if !t.Failed() {
					record(t, s.Name)
				}
			})
			s.Run(t, fresh(t))
		})
	}
}

func record(t *testing.T, name string) {
	path := os.Getenv(OutEnv)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Errorf("record the scenario: %v", err)
		return
	}
	if _, err := f.WriteString(name + "\n"); err != nil {
		t.Errorf("record the scenario: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("record the scenario: %v", err)
	}
}
