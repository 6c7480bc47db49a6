package main

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/localcluster"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// The groups of agreeing: of a pod on RoCE, of a pod on InfiniBand, of a node.
const (
	onRoCE       = "239.1.1.7"
	onInfiniBand = "239.1.1.8"
	ofNode       = "ff15:a01b:fe80::7"
	mapped       = "ff12:4001:ffff::f01:108"
)

// agreeing is a view in which the API tells what the fabric has: three
// memberships that were really joined on simulated machines.
func agreeing(t *testing.T) *view {
	t.Helper()
	fabric := rdmatest.NewFabric()
	subnet := fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
	roce := &localcluster.Node{Name: "roce", Interface: "rdma0", Machine: fabric.AddNode("roce")}
	roce.Machine.AddNIC("sim_0", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
	ib := &localcluster.Node{Name: "ib", Interface: "ib0", InfiniBand: true, Machine: fabric.AddNode("ib")}
	ib.Machine.AddHCA(subnet, "sim_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"))
	joinOn(t, roce, "10.0.0.2", func(id *rdma.ID) (*rdma.Membership, error) {
		return id.Join(netip.MustParseAddr(onRoCE), rdma.JoinOptions{})
	})
	joinOn(t, ib, "10.1.0.2", func(id *rdma.ID) (*rdma.Membership, error) {
		return id.Join(netip.MustParseAddr(onInfiniBand), rdma.JoinOptions{})
	})
	joinOn(t, ib, "10.1.0.2", func(id *rdma.ID) (*rdma.Membership, error) {
		return id.JoinMGID(netip.MustParseAddr(ofNode), rdma.JoinOptions{})
	})

	v := &view{
		groups: map[string]v1alpha1.MulticastGroup{
			"d/roce": {Spec: v1alpha1.MulticastGroupSpec{Address: onRoCE}},
			"d/ib":   {Spec: v1alpha1.MulticastGroupSpec{Address: onInfiniBand}},
			"d/warm": {Spec: v1alpha1.MulticastGroupSpec{MGID: ofNode, Nodes: &v1alpha1.NodeMembers{}}},
		},
		nodes:      map[string]v1alpha1.MulticastNode{},
		interfaces: map[string]string{"roce": "rdma0", "ib": "ib0"},
		mdb:        fabric.MDB(),
		subnet:     subnet.MDB(),
	}
	for mgid, group := range v.subnet {
		if group.Configured {
			delete(v.subnet, mgid)
		}
	}
	for _, node := range []*localcluster.Node{roce, ib} {
		for _, m := range node.Machine.Memberships() {
			v.held = append(v.held, held{node: node, Member: m})
		}
	}
	tell := func(node, group, iface, mgid string, mlid uint16) {
		status := v1alpha1.MembershipStatus{Group: group, State: v1alpha1.StateJoined, Interface: iface, MGID: mgid, MLID: int32(mlid)}
		v.told = append(v.told, told{pod: corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}, status: status})
	}
	tell("roce", "d/roce", "rdma0", "::ffff:"+onRoCE, 0)
	tell("ib", "d/ib", "ib0", mapped, v.subnet[netip.MustParseAddr(mapped)].MLID)
	entry := func(node string, groups ...string) {
		var n v1alpha1.MulticastNode
		n.Name = node
		for _, name := range groups {
			n.Status.Groups = append(n.Status.Groups, v1alpha1.NodeGroup{Namespace: "d", Name: name, Members: 1, Joined: 1})
		}
		v.nodes[node] = n
	}
	entry("roce", "roce")
	entry("ib", "ib", "warm")
	return v
}

func joinOn(t *testing.T, node *localcluster.Node, bind string, join func(*rdma.ID) (*rdma.Membership, error)) {
	t.Helper()
	ch, err := node.Machine.Host().OpenChannel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
	})
	id, err := ch.NewID(nil, rdma.PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Bind(netip.MustParseAddr(bind)); err != nil {
		t.Fatal(err)
	}
	if _, err := join(id); err != nil {
		t.Fatal(err)
	}
	if e, err := ch.Next(t.Context()); err != nil || e.Type != rdma.MulticastJoined {
		t.Fatalf("event %+v, %v", e, err)
	}
}

func TestAgree(t *testing.T) {
	mappedAddr, warmAddr := netip.MustParseAddr(mapped), netip.MustParseAddr(ofNode)
	for _, tt := range []struct {
		name   string
		change func(*view)
		want   string // "": they agree
	}{
		{"agreeing", func(*view) {}, ""},
		{"a node that refuses has an entry", func(v *view) {
			n := v.nodes["roce"]
			n.Status.Groups = append(n.Status.Groups, v1alpha1.NodeGroup{Namespace: "d", Name: "warm", Members: 1, Failing: 1})
			v.nodes["roce"] = n
		}, ""},
		{"a member that nobody was told of", func(v *view) { v.told = v.told[1:] }, "a member of 239.1.1.7 on roce, interface rdma0, namespace \"\", that the API doesn't tell of"},
		{"told of what isn't held", func(v *view) { v.held = v.held[1:] }, "the API tells of a member of 239.1.1.7 on roce"},
		{"the switch doesn't deliver", func(v *view) { v.mdb = nil }, "the switch doesn't deliver to a member: roce 239.1.1.7"},
		{"the switch delivers elsewhere", func(v *view) {
			v.mdb[netip.MustParseAddr(onRoCE)] = []rdmatest.SwitchPort{{Node: "ib"}}
		}, "the switch delivers 239.1.1.7 to ib, which has no member"},
		{"another MLID was told", func(v *view) { v.told[1].status.MLID++ }, "the subnet manager has 0x"},
		{"the subnet manager doesn't have a pod's", func(v *view) { delete(v.subnet, mappedAddr); v.told[1].status.MLID = 0 }, "the subnet manager doesn't have a member: ib " + mapped},
		{"the subnet manager doesn't have a node's", func(v *view) { delete(v.subnet, warmAddr) }, "the subnet manager doesn't have a member: ib " + ofNode},
		{"the subnet manager has another", func(v *view) {
			v.subnet[netip.MustParseAddr("ff12:4001:ffff::1")] = rdmatest.SubnetGroup{Members: []rdmatest.SubnetMember{{Node: "ib"}}}
		}, "the subnet manager has ib as a member of ff12:4001:ffff::1, which has none"},
		{"a node's membership without an entry", func(v *view) {
			n := v.nodes["ib"]
			n.Status.Groups = n.Status.Groups[:1]
			v.nodes["ib"] = n
		}, "that the API doesn't tell of"},
		{"a pod's membership without an entry", func(v *view) { delete(v.nodes, "roce") }, "roce is a member of 239.1.1.7, and its MulticastNode has no entry for it"},
		{"an entry too many", func(v *view) {
			n := v.nodes["roce"]
			n.Status.Groups = append(n.Status.Groups, v1alpha1.NodeGroup{Namespace: "d", Name: "ib", Members: 1})
			v.nodes["roce"] = n
		}, "the MulticastNode roce has an entry for d/ib, and nothing there has joined it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := agreeing(t)
			tt.change(v)
			err := v.agree()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
