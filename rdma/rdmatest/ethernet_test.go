package rdmatest_test

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/conformance"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func newRoCE(t *testing.T) (*rdmatest.Fabric, *rdmatest.Node, *rdma.Channel, *rdma.ID) {
	fabric := rdmatest.NewFabric()
	node := fabric.AddNode("node")
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
	ch, err := node.Host().OpenChannel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
	})
	return fabric, node, ch, conformance.Bind(t, ch, netip.MustParseAddr("10.0.0.2"))
}

// A carrier that was lost and is back tells nobody, and the switch has forgotten
// the port; administrative down and up makes the kernel report itself again.
func TestOnRoCETheSwitchForgets(t *testing.T) {
	group, second := netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("239.1.2.4")
	fabric, node, ch, id := newRoCE(t)
	delivered := func(group netip.Addr) bool {
		return slices.Contains(fabric.MDB()[group], rdmatest.SwitchPort{Node: "node", Device: "rxe0"})
	}
	state := func() rdma.PortState {
		devices, err := node.Host().Devices(nil)
		if err != nil {
			t.Fatal(err)
		}
		return devices[0].Ports[0].State
	}
	conformance.Join(t, ch, id, group, rdma.JoinOptions{})
	node.SetPortLink("rxe0", false)
	if delivered(group) || state() != rdma.PortDown {
		t.Errorf("without carrier: delivered %v, state %v", delivered(group), state())
	}
	conformance.Join(t, ch, id, second, rdma.JoinOptions{}) // the report is lost
	node.SetPortLink("rxe0", true)
	if delivered(group) || delivered(second) || state() != rdma.PortActive || node.IGMP("", "rdma0")[group] != 1 {
		t.Errorf("carrier back: delivered %v and %v, state %v, %d users, want no report and the membership",
			delivered(group), delivered(second), state(), node.IGMP("", "rdma0")[group])
	}
	node.SetInterface("", "rdma0", false)
	node.SetInterface("", "rdma0", true)
	if !delivered(group) || !delivered(second) {
		t.Error("administratively up again, and not reported")
	}
	// What is left while it is down, the switch isn't told.
	node.SetInterface("", "rdma0", false)
	if err := id.Leave(group); err != nil {
		t.Fatal(err)
	}
	if !delivered(group) {
		t.Error("a leave came out of an interface that is down")
	}
}

func TestABondsFailoverIsToldOnRoCEToo(t *testing.T) {
	_, node, ch, id := newRoCE(t)
	node.ChangeHardwareAddr("", "rdma0")
	if e := conformance.Next(t, ch); e.Type != rdma.AddressChange || e.ID != id {
		t.Errorf("got event %+v, want AddressChange of the id", e)
	}
	devices, err := node.Host().Devices(nil)
	if err != nil || !slices.Equal(devices[0].Ports[0].Interfaces, []string{"rdma0"}) {
		t.Errorf("got devices %+v, error %v, want rdma0 served by its new GID", devices, err)
	}
}

func TestRoCEv1UnbalancesIGMP(t *testing.T) {
	group := netip.MustParseAddr("239.1.2.3")
	_, node, ch, id := newRoCE(t)
	node.AddPlainInterface("", "eth1", netip.MustParsePrefix("10.9.0.2/24"))
	node.AddRoCEv1Device("old0", "eth1")
	v1 := conformance.Bind(t, ch, netip.MustParseAddr("10.9.0.2"))
	e := conformance.Join(t, ch, v1, group, rdma.JoinOptions{})
	if want := netip.MustParseAddr("ff0e::ffff:ef01:203"); e.Params.MGID != want || e.Params.GIDType != rdma.RoCEv1 || e.Params.HopLimit != 1 {
		t.Errorf("got %+v, want MGID %v of RoCE v1", e.Params, want)
	}
	if users := node.IGMP("", "eth1")[group]; users != 0 {
		t.Errorf("got %d users of the group, want no IGMP", users)
	}
	six := netip.MustParseAddr("ff0e::1234")
	if e := conformance.Join(t, ch, v1, six, rdma.JoinOptions{}); e.Params.MGID != six {
		t.Errorf("got MGID %v, want %v", e.Params.MGID, six)
	}
	// RoCE v2 beside it is as ever.
	conformance.Join(t, ch, id, group, rdma.JoinOptions{})
	if users := node.IGMP("", "rdma0")[group]; users != 1 {
		t.Errorf("got %d users on rdma0, want 1", users)
	}
}

func TestIWARPHasNoMulticast(t *testing.T) {
	_, node, ch, _ := newRoCE(t)
	node.AddPlainInterface("", "eth1", netip.MustParsePrefix("10.9.0.2/24"))
	node.AddIWARPDevice("cxgb0", "eth1")
	id := conformance.Bind(t, ch, netip.MustParseAddr("10.9.0.2"))
	if _, err := id.Join(netip.MustParseAddr("239.1.2.3"), rdma.JoinOptions{}); !errors.Is(err, syscall.ENOSYS) {
		t.Errorf("got error %v, want ENOSYS", err)
	}
	devices, err := node.Host().Devices(nil)
	if err != nil || !devices[0].IWARP || devices[1].IWARP {
		t.Errorf("got devices %+v, error %v, want the first to be iWARP", devices, err)
	}
}

// In exclusive mode a device is of one namespace alone.
func TestExclusiveNamespaceMode(t *testing.T) {
	const path = "/run/netns/pod"
	group := netip.MustParseAddr("239.1.2.3")
	_, node, ch, id := newRoCE(t)
	node.AddNetNS(path)
	node.AddMACVLAN(path, "net1", "rdma0", netip.MustParsePrefix("10.0.0.9/24"))
	ns, err := node.Host().OpenNetNS(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	want := func(what string, ns *rdma.NetNS, devices, interfaces int) {
		t.Helper()
		gotDevices, err := node.Host().Devices(ns)
		if err != nil || len(gotDevices) != devices {
			t.Errorf("%s: got devices %+v, error %v, want %d", what, gotDevices, err, devices)
		}
		gotInterfaces, err := node.Host().Interfaces(ns)
		if err != nil || len(gotInterfaces) != interfaces {
			t.Errorf("%s: got interfaces %+v, error %v, want %d", what, gotInterfaces, err, interfaces)
		}
	}
	want("shared, the host", nil, 1, 1)
	want("shared, the pod", ns, 1, 1)
	conformance.Join(t, ch, id, group, rdma.JoinOptions{})
	node.SetExclusiveNetNS()
	want("exclusive, the host", nil, 1, 1)
	want("exclusive, the pod", ns, 0, 0)
	node.MoveDevice("rxe0", path)
	if e := conformance.Next(t, ch); e.Type != rdma.DeviceRemoval || e.ID != id {
		t.Errorf("got event %+v, want DeviceRemoval of the id", e)
	}
	if users := node.IGMP("", "rdma0")[group]; users != 0 {
		t.Errorf("got %d users after the device was moved, want none", users)
	}
	want("moved, the host", nil, 0, 0)
	want("moved, the pod", ns, 1, 1)
	node.DeleteNetNS(path)
	want("the pod's namespace gone", nil, 1, 1)
}
