package conformance

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// mgidVector is a group address and its MGID, on an interface with that P_Key
// and scope.
type mgidVector struct {
	group string
	ps    rdma.PortSpace
	pkey  uint16
	scope uint8
	mgid  string
}

// mgidVectors are computed from ip_ib_mc_map, ipv6_ib_mc_map and cma_set_mgid.
func mgidVectors() []mgidVector {
	return []mgidVector{
		{"239.1.2.3", rdma.PortSpaceIPoIB, 0xffff, 2, "ff12:401b:ffff::f01:203"},
		{"239.1.2.3", rdma.PortSpaceUDP, 0xffff, 2, "ff12:4001:ffff::f01:203"},
		{"239.255.255.250", rdma.PortSpaceUDP, 0xffff, 2, "ff12:4001:ffff::fff:fffa"},
		{"239.1.2.3", rdma.PortSpaceIPoIB, 0x8001, 5, "ff15:401b:8001::f01:203"},
		{"239.1.2.3", rdma.PortSpaceUDP, 0x8001, 5, "ff15:4001:8001::f01:203"},
		{"ff0e::1234", rdma.PortSpaceIPoIB, 0xffff, 2, "ff12:601b:ffff::1234"},
		{"ff0e::1234", rdma.PortSpaceUDP, 0xffff, 2, "ff12:6001:ffff::1234"},
		{"ff0e:1:2:3:4:5:6:7", rdma.PortSpaceUDP, 0xffff, 2, "ff12:6001:ffff:3:4:5:6:7"},
		{"ff15:a01b:fe80::1", rdma.PortSpaceIPoIB, 0xffff, 2, "ff15:a01b:fe80::1"},
		{"ff15:a01b:fe80::1", rdma.PortSpaceUDP, 0x8001, 5, "ff15:a01b:fe80::1"},
		{"ff12:401b:ffff::1", rdma.PortSpaceIPoIB, 0xffff, 2, "ff12:601b:ffff::1"}, // not verbatim
	}
}

// ibMGIDs has what holds of groups' MGIDs.
func ibMGIDs() []ibScenario {
	return []ibScenario{
		{"a group's MGID comes from its address, the port space and the interface's broadcast group", func(t *testing.T, m InfiniBandMachine) {
			m.Subnet().AddPartition(rdmatest.Partition{PKey: partition, Scope: 5})
			child := netip.MustParsePrefix("10.1.1.2/24")
			m.Node().AddIPoIBChild("", "ib0.8001", ipoib0, partition, child)
			m.Node().SetBroadcastScope("", "ib0.8001", 5)
			ch := OpenChannel(t, m)
			for _, v := range mgidVectors() {
				addr := ipoibAddr()
				if v.pkey == partition {
					addr = child.Addr()
				}
				id := bindAs(t, ch, nil, v.ps, addr)
				group := netip.MustParseAddr(v.group)
				e := Join(t, ch, id, group, rdma.JoinOptions{})
				if want := netip.MustParseAddr(v.mgid); e.Params.MGID != want {
					t.Errorf("%+v: got MGID %v", v, e.Params.MGID)
				}
				if mgid, ok := rdma.MapMGID(group, v.ps, v.pkey, v.scope); !ok || mgid != e.Params.MGID {
					t.Errorf("%+v: MapMGID gives %v, %v, and the kernel joined %v", v, mgid, ok, e.Params.MGID)
				}
				if err := id.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"an MGID is joined verbatim, and left as what it was joined as", func(t *testing.T, m InfiniBandMachine) {
			mgid := netip.MustParseAddr("ff15:a01b:fe80::7")
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			e := joinMGID(t, ch, id, mgid)
			if e.Params.MGID != mgid || e.Membership.Group() != mgid || !e.Membership.Verbatim() {
				t.Errorf("got %+v of %v, want %v verbatim", e.Params, e.Membership.Group(), mgid)
			}
			// By its IPv6 address it is another membership of the same group.
			if e := Join(t, ch, id, mgid, rdma.JoinOptions{}); e.Params.MGID != mgid || e.Membership.Verbatim() {
				t.Errorf("got %+v, want %v by its address", e.Params, mgid)
			}
			if err := id.LeaveMGID(mgid); err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.LeaveMGID(mgid), syscall.EADDRNOTAVAIL, "leave", mgid.String())
			wantMembers(t, m, mgid, full())
			if err := id.Leave(mgid); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, mgid)
		}},
		{"any MGID can be joined verbatim that the subnet manager takes", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			for _, mgid := range []string{"ff12:4001:ffff::f01:203", "ff1e:1:2:3:4:5:6:7"} {
				if e := joinMGID(t, ch, id, netip.MustParseAddr(mgid)); e.Params.MGID != netip.MustParseAddr(mgid) {
					t.Errorf("got MGID %v, want %s", e.Params.MGID, mgid)
				}
			}
			// One that is link-local with a01b is the subnet manager's to choose.
			link := netip.MustParseAddr("ff12:a01b:fe80::1")
			for _, join := range []func(netip.Addr, rdma.JoinOptions) (*rdma.Membership, error){id.Join, id.JoinMGID} {
				if _, err := join(link, rdma.JoinOptions{}); err != nil {
					t.Fatal(err)
				}
				wantLost(t, ch, syscall.EINVAL)
			}
			for _, mgid := range []string{"239.1.2.3", "::", "fe80::1", "::ffff:239.1.2.3"} {
				_, err := id.JoinMGID(netip.MustParseAddr(mgid), rdma.JoinOptions{})
				wantErrno(t, err, syscall.EINVAL, "join", mgid)
			}
		}},
	}
}

// ibJoining has what holds of joining an InfiniBand group.
func ibJoining() []ibScenario {
	group := netip.MustParseAddr("239.3.1.7")
	return []ibScenario{
		{"the join's event tells how to reach an InfiniBand group", func(t *testing.T, m InfiniBandMachine) {
			m.Subnet().AddPartition(rdmatest.Partition{PKey: partition, Scope: 5, SL: 3, TrafficClass: 0x20, FlowLabel: 0x12345})
			child := netip.MustParsePrefix("10.1.1.2/24")
			m.Node().AddIPoIBChild("", "ib0.8001", ipoib0, partition, child)
			m.Node().SetBroadcastScope("", "ib0.8001", 5)
			ch := OpenChannel(t, m)
			e := Join(t, ch, bindAs(t, ch, nil, rdma.PortSpaceUDP, child.Addr()), group, rdma.JoinOptions{})
			mgid := netip.MustParseAddr("ff15:4001:8001::f01:307")
			want := rdma.Params{
				MGID:         netip.MustParseAddr("ff15:4001:8001::f03:107"),
				MLID:         m.Subnet().MDB()[netip.MustParseAddr("ff15:4001:8001::f03:107")].MLID,
				QKey:         0x01234567,
				QPN:          0xFFFFFF,
				GID:          portGID(t, m),
				PKey:         partition,
				PKeyIndex:    1,
				FlowLabel:    0x12345,
				HopLimit:     255,
				TrafficClass: 0x20,
				SL:           3,
				StaticRate:   16, // the first joiner's port's: IBV_RATE_100_GBPS
				IsGlobal:     true,
				Device:       hca,
				Port:         1,
			}
			if diff := cmp.Diff(want, e.Params, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			if e.Params.MLID < 0xC000 || e.Params.MLID == 0xFFFF {
				t.Errorf("got MLID %#x, want one of a group", e.Params.MLID)
			}
			wantMembers(t, m, mgid)
			wantMembers(t, m, want.MGID, full())
		}},
		{"port space IPoIB has the broadcast group's Q_Key, MTU and rate", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			e := Join(t, ch, bindIB(t, ch, rdma.PortSpaceIPoIB), group, rdma.JoinOptions{})
			if e.Params.QKey != 0x0b1b || e.Params.StaticRate != 3 {
				t.Errorf("got Q_Key %#x, rate %d, want the broadcast group's 0xb1b and 3 (10 Gbit/s)", e.Params.QKey, e.Params.StaticRate)
			}
		}},
		{"a send-only member is one of the subnet manager's too, without a queue pair", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			qp := &queuePair{}
			e := Join(t, ch, id, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember, QP: qp})
			if e.Params.MLID < 0xC000 {
				t.Errorf("got MLID %#x, want one of a group", e.Params.MLID)
			}
			wantMembers(t, m, udpMGID(group), sendOnly())
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantMembers(t, m, udpMGID(group))
			qp.want(t)
		}},
		{"a full member's queue pair is attached and detached with the MLID", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			qp := &queuePair{}
			e := Join(t, ch, id, group, rdma.JoinOptions{QP: qp})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			qp.want(t, call{"attach", udpMGID(group), e.Params.MLID}, call{"detach", udpMGID(group), e.Params.MLID})
		}},
		{"two joins of one group with different MLIDs in between are told apart", func(t *testing.T, m InfiniBandMachine) {
			ch := OpenChannel(t, m)
			id := bindIB(t, ch, rdma.PortSpaceUDP)
			first := Join(t, ch, id, group, rdma.JoinOptions{}).Params.MLID
			m.Subnet().FailOver(true)
			wantLost(t, ch, syscall.ENETRESET)
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			// The new subnet manager gives the lowest MLID to whoever comes first.
			Join(t, ch, id, netip.MustParseAddr("239.3.1.8"), rdma.JoinOptions{})
			if again := Join(t, ch, id, group, rdma.JoinOptions{}).Params.MLID; again == first {
				t.Errorf("got MLID %#x twice", again)
			}
		}},
	}
}

// portGID is the GID of the machine's port.
func portGID(t *testing.T, m Machine) netip.Addr {
	t.Helper()
	gid, err := m.Kernel().GID(hca, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	return gid.GID
}
