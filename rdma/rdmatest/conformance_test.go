package rdmatest_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/leak"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, newMachine, append(conformance.Scenarios(), simulatedOnly()...))
}

// machine is conformance's on a simulated node.
type machine struct {
	fabric *rdmatest.Fabric
	node   *rdmatest.Node
	spaces int
}

func newMachine(t *testing.T) conformance.Machine {
	fabric := rdmatest.NewFabric()
	node := fabric.AddNode("vm")
	for i := range 2 {
		node.AddNIC(fmt.Sprintf("rxe%d", i), fmt.Sprintf("rdma%d", i),
			netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", i+2)),
			netip.MustParsePrefix(fmt.Sprintf("fd00::%d/64", i+2)))
	}
	t.Cleanup(func() { wantNothingOpen(t, node) })
	return &machine{fabric: fabric, node: node}
}

func (m *machine) Host() *rdma.Host { return m.node.Host() }

func (m *machine) Kernel() sys.Kernel { return rdmatest.Kernel(m.node) }

func (m *machine) AddNetNS(*testing.T) string {
	m.spaces++
	path := fmt.Sprintf("/run/netns/ns%d", m.spaces)
	m.node.AddNetNS(path)
	return path
}

func (m *machine) AddMACVLAN(_ *testing.T, path, name, parent string, addr netip.Prefix) {
	m.node.AddMACVLAN(path, name, parent, addr)
}

func (m *machine) AddPlain(_ *testing.T, path, name string, addr netip.Prefix) {
	m.node.AddPlainInterface(path, name, addr)
}

func (m *machine) DeleteInterface(_ *testing.T, path, name string) {
	m.node.DeleteInterface(path, name)
}

func (m *machine) AddAddress(_ *testing.T, path, name string, addr netip.Prefix) {
	m.node.AddAddress(path, name, addr)
}

func (m *machine) DeleteAddress(_ *testing.T, path, name string, addr netip.Prefix) {
	m.node.DeleteAddress(path, name, addr)
}

func (m *machine) AddDevice(_ *testing.T, device, netdev string) { m.node.AddDevice(device, netdev) }

func (m *machine) RemoveDevice(_ *testing.T, device string) { m.node.RemoveDevice(device) }

func (m *machine) UnloadUCM() error { return m.node.UnloadUCM() }

func (m *machine) LoadUCM(*testing.T) { m.node.LoadUCM() }

func (m *machine) IGMP(_ *testing.T, path, name string) map[netip.Addr]int {
	return m.node.IGMP(path, name)
}

func (m *machine) Switch(_ *testing.T, group netip.Addr) []string {
	var devices []string
	for _, p := range m.fabric.MDB()[group] {
		devices = append(devices, p.Device)
	}
	return devices
}
