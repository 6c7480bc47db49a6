package rdma

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

func TestPortState(t *testing.T) {
	for text, want := range map[string]PortState{
		"1: DOWN": PortDown, "2: INIT": PortInit, "3: ARMED": PortArmed, "4: ACTIVE": PortActive, "5: ACTIVE_DEFER": PortActiveDefer,
		"": PortUnknown, "4": PortUnknown, "0: NOP": PortUnknown, "6: X": PortUnknown, "44: ACTIVE": PortUnknown, "é: ACTIVE": PortUnknown,
	} {
		if got := portState(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestInterfacesOfAPort(t *testing.T) {
	mac := []byte{0x52, 0x54, 0x00, 0x12, 0x34, 0x56}
	links := []sys.Link{
		{Name: "eth0", HardwareAddr: mac, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}},
		{Name: "eth1", HardwareAddr: []byte{2, 0, 0, 0, 0, 1}, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.1.1/24"), netip.MustParsePrefix("fd00::1/64")}},
		// An IPoIB interface ends in its port's GUID; a child has it too.
		{Name: "ib0", HardwareAddr: append(make([]byte, 12), 0x98, 0x03, 0x9b, 0x03, 0x00, 0x5e, 0x1d, 0xe2)},
		{Name: "ib0.8001", HardwareAddr: append(make([]byte, 12), 0x98, 0x03, 0x9b, 0x03, 0x00, 0x5e, 0x1d, 0xe2)},
		{Name: "ib1", HardwareAddr: append(make([]byte, 12), 0x98, 0x03, 0x9b, 0x03, 0x00, 0x5e, 0x1d, 0xe3)},
		{Name: "lo", HardwareAddr: make([]byte, 6), Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
		{Name: "tun0"},
	}
	gid := func(index int, gid, link string) sys.GID {
		return sys.GID{Index: index, GID: netip.MustParseAddr(gid), Interface: link}
	}
	for _, tt := range []struct {
		name string
		gids []sys.GID
		want []string
	}{
		{"default GID", []sys.GID{gid(0, "fe80::5054:ff:fe12:3456", "eth0")}, []string{"eth0"}},
		{"IPv4 GID", []sys.GID{gid(2, "::ffff:10.0.1.1", "eth1")}, []string{"eth1"}},
		{"IPv6 GID", []sys.GID{gid(2, "fd00::1", "eth1")}, []string{"eth1"}},
		{"same name in another namespace", []sys.GID{gid(2, "::ffff:10.7.7.7", "eth0")}, nil},
		{"same address on another interface", []sys.GID{gid(2, "::ffff:10.0.0.1", "eth1")}, nil},
		{"InfiniBand, with its child", []sys.GID{gid(0, "fe80::9803:9b03:5e:1de2", "")}, []string{"ib0", "ib0.8001"}},
		{"InfiniBand alias GUID", []sys.GID{gid(1, "fe80::9803:9b03:5e:1de2", "")}, nil},
		{"none", nil, nil},
	} {
		if got := served(sys.Port{GIDs: tt.gids}, links); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestInterfacesThatGoMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		setup func(*scripted)
		want  error
	}{
		"the device, once bound":         {func(s *scripted) { s.queryErr = syscall.ENXIO }, nil},
		"the device, on an older kernel": {func(s *scripted) { s.queryErr = syscall.EIO }, nil},
		"the device, before it is read":  {func(s *scripted) { s.layerErr = syscall.ENOENT }, nil},
		"the address":                    {func(s *scripted) { s.bindErr = syscall.EADDRNOTAVAIL }, nil},
		"a device without a name":        {func(s *scripted) { s.bound.DeviceIndex = 7 }, nil},
		"the memory":                     {func(s *scripted) { s.bindErr = syscall.ENOMEM }, syscall.ENOMEM},
		"the permission":                 {func(s *scripted) { s.bindErr = syscall.EACCES }, syscall.EACCES},
		"the kernel's mind":              {func(s *scripted) { s.queryErr = syscall.EFAULT }, syscall.EFAULT},
		"the link layer":                 {func(s *scripted) { s.layerErr = syscall.EIO }, syscall.EIO},
	} {
		s := newScripted()
		s.links = net1()
		tt.setup(s)
		interfaces, err := NewHost(s).Interfaces(nil)
		if len(interfaces) > 0 || !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, error %v, want none, and %v", name, interfaces, err, tt.want)
		}
	}
}

func TestPKeyOfAnInterface(t *testing.T) {
	for bound, want := range map[uint16]uint16{0: 0xffff, 0x8001: 0x8001} {
		s := newScripted()
		s.links = append(net1(), sys.Link{Name: "lo", Loopback: true, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}})
		s.links[0].Addrs = append(s.links[0].Addrs, netip.MustParsePrefix("fe80::1/64"))
		s.bound.PKey = bound
		interfaces, err := NewHost(s).Interfaces(nil)
		if err != nil {
			t.Fatal(err)
		}
		wantAll := []Interface{{
			Name: "net1", Index: 7, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")},
			Device: "mlx5_0", Port: 1, LinkLayer: LinkLayerEthernet, PKey: want,
		}}
		if diff := cmp.Diff(wantAll, interfaces, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("interfaces (-want +got):\n%s", diff)
		}
	}
}

// A port without a GUID is nobody's, least of all that of every IPoIB interface
// without one.
func TestPortsWithoutAGUID(t *testing.T) {
	links := []sys.Link{{Name: "ib0", HardwareAddr: make([]byte, 20)}, {Name: "odd", HardwareAddr: []byte{1}}, {Name: "none"}}
	for _, gid := range []string{"fe80::", "::"} {
		if got := served(sys.Port{GIDs: []sys.GID{{GID: netip.MustParseAddr(gid)}}}, links); len(got) > 0 {
			t.Errorf("GID %s: got %v, want none", gid, got)
		}
	}
	for text, want := range map[string]string{"0000:0000:0000:0000": "", "": "", "0011:2233:4455:6677": "0011:2233:4455:6677"} {
		if got := nodeGUID(text); got != want {
			t.Errorf("node GUID %q: got %q, want %q", text, got, want)
		}
	}
}
