package rdma

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

// texts are problems as "reason error".
func texts(problems []*Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, string(p.Reason)+" "+p.Error())
	}
	return out
}

func TestProblemText(t *testing.T) {
	for want, p := range map[string]*Problem{
		"rdma: net1 (mlx5_0 port 1): RoCE v1, where leaving a group takes away somebody else's IGMP membership":           {Reason: ReasonRoCEv1, Device: "mlx5_0", Port: 1, Interface: "net1"},
		"rdma: mlx5_0: no uverbs device, so that no program can attach to a group":                                        {Reason: ReasonNoVerbs, Device: "mlx5_0"},
		"rdma: open /dev/infiniband/rdma_cm: no rdma_cm in this kernel: is the module rdma_ucm loaded?":                   {Reason: ReasonNoRDMACM, Err: &OpError{Op: "open", Path: sys.CMPath, Err: ErrUnavailable}},
		"rdma: ib0: not ready yet: join 239.1.1.7 on ib0: cannot assign requested address (EADDRNOTAVAIL)":                {Reason: ReasonNotReady, Interface: "ib0", Err: &OpError{Op: "join", Group: netip.MustParseAddr("239.1.1.7"), Interface: "ib0", Err: syscall.EADDRNOTAVAIL}},
		"rdma: rxe0 port 1: this kernel leaves another group than it is told to (5.10 to 5.15.21 do): 1 users, want none": {Reason: ReasonWrongGroupLeft, Device: "rxe0", Port: 1, Err: errors.New("1 users, want none")},
	} {
		if got := p.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if p.Err != nil && !errors.Is(p, p.Err) {
			t.Errorf("%v: errors.Is doesn't find the cause", p)
		}
	}
}

func TestEveryReasonIsExplained(t *testing.T) {
	temporary := 0
	for _, r := range []Reason{
		ReasonNoRDMACM, ReasonNoVerbs, ReasonIWARP, ReasonRoCEv1, ReasonNoIPoIB, ReasonNoInterface,
		ReasonPortNotActive, ReasonNotReady, ReasonNoAnswer, ReasonWrongGroupLeft, ReasonSelfTestFailed,
	} {
		if r.explanation() == "" && r != ReasonNoRDMACM {
			t.Errorf("%s has no explanation", r)
		}
		if strings.ContainsFunc(string(r), func(c rune) bool { return c > 'z' || c < '0' }) {
			t.Errorf("%q isn't a word that a condition's reason can be", r)
		}
		if r.Temporary() {
			temporary++
		}
	}
	if temporary != 3 {
		t.Errorf("%d reasons are temporary, want 3", temporary)
	}
}

// rocePort is a port whose one interface is net1 with 10.0.0.2.
func rocePort(types ...string) sys.Port {
	p := sys.Port{Number: 1, LinkLayer: "Ethernet", State: "4: ACTIVE"}
	for i, t := range types {
		p.GIDs = append(p.GIDs, sys.GID{Index: i, GID: netip.MustParseAddr("::ffff:10.0.0.2"), Type: t, Interface: "net1"})
	}
	return p
}

func net1() []sys.Link {
	return []sys.Link{{Index: 7, Name: "net1", HardwareAddr: []byte{2, 0, 0, 0, 0, 1}, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}
}

func TestProbe(t *testing.T) {
	infiniBand := func(state string) sys.Port { return sys.Port{Number: 1, LinkLayer: "InfiniBand", State: state} }
	for _, tt := range []struct {
		name   string
		device sys.Device
		setup  func(*scripted)
		want   []string
	}{
		{"all well", sys.Device{UVerbs: "uverbs0", Ports: []sys.Port{rocePort("IB/RoCE v1", "RoCE v2")}}, nil, nil},
		{"RoCE v1 only", sys.Device{UVerbs: "uverbs0", Ports: []sys.Port{rocePort("IB/RoCE v1", "IB/RoCE v1")}}, nil,
			[]string{"RoCEv1 rdma: mlx5_0 port 1: RoCE v1, where leaving a group takes away somebody else's IGMP membership"}},
		{"types that aren't known accuse nobody", sys.Device{UVerbs: "uverbs0", Ports: []sys.Port{rocePort("", "")}}, nil, nil},
		{"no GIDs at all", sys.Device{UVerbs: "uverbs0", Ports: []sys.Port{rocePort()}}, nil, nil},
		{"no uverbs", sys.Device{Ports: []sys.Port{rocePort("RoCE v2")}}, nil,
			[]string{"NoVerbs rdma: mlx5_0: no uverbs device, so that no program can attach to a group"}},
		{"iWARP", sys.Device{UVerbs: "uverbs0", NodeType: "4: RNIC", Ports: []sys.Port{rocePort("IB/RoCE v1")}}, nil,
			[]string{"IWARP rdma: mlx5_0 port 1: iWARP has no multicast"}},
		{"no interface", sys.Device{UVerbs: "uverbs0", Ports: []sys.Port{rocePort("RoCE v2")}}, func(s *scripted) { s.bindErr = syscall.ENODEV },
			[]string{"NoInterface rdma: mlx5_0 port 1: no interface that rdma_cm can bind to in this network namespace"}},
		{"no IPoIB, and down", sys.Device{UVerbs: "uverbs0", Ports: []sys.Port{infiniBand("1: DOWN")}}, func(s *scripted) { s.links = []sys.Link{} },
			[]string{
				"NoIPoIB rdma: mlx5_0 port 1: no IPoIB interface with an address in this network namespace",
				"PortNotActive rdma: mlx5_0 port 1: the port isn't active",
			}},
		{"IPoIB", sys.Device{UVerbs: "uverbs0", Ports: []sys.Port{infiniBand("5: ACTIVE_DEFER")}}, nil, nil},
		{"a device without ports", sys.Device{UVerbs: "uverbs0"}, nil, nil},
		{"no rdma_cm", sys.Device{Ports: []sys.Port{rocePort("RoCE v2")}}, func(s *scripted) { s.openErr = syscall.ENXIO },
			[]string{
				"NoRDMACM rdma: open /dev/infiniband/rdma_cm: no rdma_cm in this kernel: is the module rdma_ucm loaded?: no such device or address (ENXIO)",
				"NoVerbs rdma: mlx5_0: no uverbs device, so that no program can attach to a group",
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScripted()
			tt.device.Name = "mlx5_0"
			s.links, s.devices = net1(), []sys.Device{tt.device}
			if tt.setup != nil {
				tt.setup(s)
			}
			problems, err := NewHost(s).Probe(nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, texts(problems)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if s.took() != nil {
				t.Errorf("joined: %v", s.took())
			}
		})
	}
}

func TestProbeThatCannotLook(t *testing.T) {
	s := newScripted() // links: EPERM
	s.devices = []sys.Device{{Name: "mlx5_0"}}
	if problems, err := NewHost(s).Probe(nil); problems != nil || !errors.Is(err, syscall.EPERM) {
		t.Errorf("got problems %v, error %v, want EPERM", problems, err)
	}
	s = newScripted()
	s.links, s.openErr = net1(), syscall.EACCES
	if problems, err := NewHost(s).Probe(nil); problems != nil || !errors.Is(err, syscall.EACCES) {
		t.Errorf("got problems %v, error %v, want EACCES", problems, err)
	}
}

func TestDevicesAreAsSysfsTells(t *testing.T) {
	s := newScripted()
	s.links = net1()
	s.pkeysErr = syscall.ENOENT
	s.devices = []sys.Device{
		{Name: "mlx5_0", NodeGUID: "0000:0000:0000:0000", NUMANode: 1, Ports: []sys.Port{rocePort("RoCE v2")}},
		{Name: "mlx5_1", NodeGUID: "0011:2233:4455:6677", UVerbs: "uverbs3", NUMANode: -1},
	}
	devices, err := NewHost(s).Devices(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{
		{Name: "mlx5_0", NUMANode: 1, Ports: []Port{{
			Number: 1, LinkLayer: LinkLayerEthernet, State: PortActive, Interfaces: []string{"net1"},
			GIDs: []GID{{Index: 0, GID: netip.MustParseAddr("::ffff:10.0.0.2"), Type: RoCEv2, Interface: "net1"}},
		}}},
		{Name: "mlx5_1", NodeGUID: "0011:2233:4455:6677", UVerbs: "uverbs3", NUMANode: -1},
	}
	if diff := cmp.Diff(want, devices, compareAddrs()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	s.pkeysErr, s.pkeys = nil, []uint16{0xffff, 0x8001}
	if devices, err = NewHost(s).Devices(nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint16{0xffff, 0x8001}, devices[0].Ports[0].PKeys); diff != "" {
		t.Errorf("P_Keys (-want +got):\n%s", diff)
	}
}
