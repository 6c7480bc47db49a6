package membership

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

func TestPlan(t *testing.T) {
	net1 := roce("net1", "rxe1", "10.0.0.2/24")
	net2 := roce("net2", "mlx5_2", "fd00::2/64", "10.9.0.2/24")
	node := ifaces(roce("rdma0", "rxe0", "192.168.0.1/24"), "eth0")
	const wantA = `want default/a 239.1.1.7 FullMember on "s-p" net1/1 (10.0.0.2): uid-p`

	tests := []struct {
		name    string
		groups  []Group
		pods    []Pod
		ifaces  map[string]Interfaces
		unable  map[Port]Problem
		limits  Limits
		want    []string
		message string // of the first verdict
	}{
		{
			name: "a pod and its group", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1, "eth0")},
			want:   []string{wantA},
		},
		{
			name: "every interface that matches", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1, net2)},
			want:   []string{wantA, `want default/a 239.1.1.7 FullMember on "s-p" net2/1 (10.9.0.2): uid-p`},
		},
		{
			name: "the one that is named", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a", on("net1")))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1, net2)},
			want:   []string{wantA},
		},
		{
			name: "asked for twice in two ways", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a", as(rdma.SendOnlyFullMember)), ask("a", on("net1")))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{wantA},
		},
		{
			name: "a group that nobody asks for", groups: []Group{testGroup("a")}, pods: []Pod{pod("p")},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
		},
		{
			name: "a pod without its group", pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Waiting uid-p: default/a@ UnknownGroup"}, message: "there is no MulticastGroup default/a",
		},
		{
			name:   "its other groups are joined all the same",
			groups: []Group{testGroup("a")},
			pods: []Pod{func() Pod {
				p := pod("p", ask("missing"), ask("a"))
				p.RequestError = errors.New("element 3 is bad")
				return p
			}()},
			ifaces:  map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:    []string{wantA, "Refused uid-p: /@ InvalidAnnotation", "Waiting uid-p: default/missing@ UnknownGroup"},
			message: "element 3 is bad",
		},
		{
			name: "another namespace's group without permission", groups: []Group{testGroup("a", func(g *Group) { g.Namespace, g.Allowed = "feeds", []string{"other"} })},
			pods:   []Pod{pod("p", ask("a", func(r *Request) { r.Namespace = "feeds" }))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Refused uid-p: feeds/a@ NotAllowed"}, message: "spec.allowedNamespaces would have to list default",
		},
		{
			name: "with permission", groups: []Group{testGroup("a", func(g *Group) { g.Namespace, g.Allowed = "feeds", []string{"other", "default"} })},
			pods:   []Pod{pod("p", ask("a", func(r *Request) { r.Namespace = "feeds" }))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{strings.Replace(wantA, "default/a", "feeds/a", 1)},
		},
		{
			name: "with permission for all", groups: []Group{testGroup("a", func(g *Group) { g.Namespace, g.Allowed = "feeds", []string{"*"} })},
			pods:   []Pod{pod("p", ask("a", func(r *Request) { r.Namespace = "feeds" }))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{strings.Replace(wantA, "default/a", "feeds/a", 1)},
		},
		{
			name: "not accepted", groups: []Group{testGroup("a", func(g *Group) { g.Accepted = false })}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Waiting uid-p: default/a@ NotAccepted"},
		},
		{
			name: "being deleted", groups: []Group{testGroup("a", func(g *Group) { g.Deleting = true })}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Waiting uid-p: default/a@ GroupDeleting"},
		},
		{
			name: "send-only by request", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a", as(rdma.SendOnlyFullMember)))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{strings.Replace(wantA, "FullMember", "SendOnlyFullMember", 1)},
		},
		{
			name: "send-only by the group", groups: []Group{testGroup("a", func(g *Group) { g.Mode = rdma.SendOnlyFullMember })}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{strings.Replace(wantA, "FullMember", "SendOnlyFullMember", 1)},
		},
		{
			name: "more than the group allows", groups: []Group{testGroup("a", func(g *Group) { g.Mode = rdma.SendOnlyFullMember })}, pods: []Pod{pod("p", ask("a", as(rdma.FullMember)))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Refused uid-p: default/a@ ModeNotAllowed"},
		},
		{
			name: "host network: shared, and full as soon as one is", groups: []Group{testGroup("a")},
			pods:   []Pod{hostPod("q", ask("a", as(rdma.SendOnlyFullMember))), hostPod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node},
			want:   []string{`want default/a 239.1.1.7 FullMember on "" rdma0/1 (192.168.0.1): uid-p uid-q`},
		},
		{
			name: "no RDMA interface of its own: the node's", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces("eth0")},
			want:   []string{`want default/a 239.1.1.7 FullMember on "" rdma0/1 (192.168.0.1): uid-p`},
		},
		{
			name: "no RDMA interface of its own: the node's by name", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a", on("rdma0")))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces("eth0")},
			want:   []string{`want default/a 239.1.1.7 FullMember on "" rdma0/1 (192.168.0.1): uid-p`},
		},
		{
			name: "a name of its own isn't the node's", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a", on("rdma0")))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces("rdma0")},
			want:   []string{"Refused uid-p: default/a@rdma0 InterfaceNotRDMA"}, message: "in the pod's network namespace isn't an RDMA interface",
		},
		{
			name: "with an RDMA interface of its own the node's can't be named", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a", on("rdma0")))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Refused uid-p: default/a@rdma0 InterfaceNotFound"}, message: "there is no interface rdma0 in the pod's network namespace",
		},
		{
			name: "an interface that isn't RDMA", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a", on("eth0")))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1, "eth0")},
			want:   []string{"Refused uid-p: default/a@eth0 InterfaceNotRDMA"}, message: "interface eth0 in the pod's network namespace isn't an RDMA interface",
		},
		{
			name: "the node's that isn't RDMA", groups: []Group{testGroup("a")}, pods: []Pod{hostPod("p", ask("a", on("eth0")))},
			ifaces: map[string]Interfaces{NodeScope: node},
			want:   []string{"Refused uid-p: default/a@eth0 InterfaceNotRDMA"}, message: "in the node's network namespace",
		},
		{
			name: "no RDMA anywhere", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a")), hostPod("q", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: ifaces("eth0"), "s-p": ifaces("eth0")},
			want:   []string{"Refused uid-p: default/a@ NoRDMAInterface", "Refused uid-q: default/a@ NoRDMAInterface"},
		},
		{
			name: "interfaces not listed yet", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node},
			want:   []string{"Waiting uid-p: default/a@ InterfacesUnknown"},
		},
		{
			name: "interfaces can't be listed: never the node's instead", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": {Err: errors.New("no rdma_cm")}},
			want:   []string{"Waiting uid-p: default/a@ InterfacesUnknown"}, message: "no rdma_cm",
		},
		{
			name: "the node's can't be listed", groups: []Group{testGroup("a")}, pods: []Pod{hostPod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: {Err: errors.New("no rdma_cm")}},
			want:   []string{"Waiting uid-p: default/a@ InterfacesUnknown"}, message: "no rdma_cm",
		},
		{
			name: "an IPv6 group on RoCE v2", groups: []Group{testGroup("a", at("ff0e::7"))}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Refused uid-p: default/a@net1 UnsupportedAddress"}, message: "errno 524",
		},
		{
			name: "an IPv6 group on InfiniBand", groups: []Group{testGroup("a", at("ff0e::7"))}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(ib("ib0", "mlx5_0", "10.1.0.2/24"))},
			want:   []string{`want default/a ff0e::7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`},
		},
		{
			name: "one interface can't, the other can", groups: []Group{testGroup("a", at("ff0e::7"))}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1, ib("ib0", "mlx5_0", "10.1.0.2/24"))},
			want:   []string{`want default/a ff0e::7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`, "Refused uid-p: default/a@net1 UnsupportedAddress"},
		},
		{
			name: "a verbatim MGID on InfiniBand", groups: []Group{testGroup("a", verbatim("ff15:a01b:fe80::7"))}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(ib("ib0", "mlx5_0", "10.1.0.2/24"))},
			want:   []string{`want default/a ff15:a01b:fe80::7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`},
		},
		{
			name: "a verbatim MGID on RoCE", groups: []Group{testGroup("a", verbatim("ff15:a01b:fe80::7"))}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{"Refused uid-p: default/a@net1 UnsupportedAddress"}, message: "spec.interfaceSelector.linkLayers",
		},
		{
			name:   "an address and the same MGID, verbatim, are two groups",
			groups: []Group{testGroup("a", at("ff15:a01b:fe80::7")), testGroup("b", verbatim("ff15:a01b:fe80::7"))}, pods: []Pod{pod("p", ask("a"), ask("b"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(ib("ib0", "mlx5_0", "10.1.0.2/24"))},
			want: []string{
				`want default/a ff15:a01b:fe80::7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`,
				`want default/b ff15:a01b:fe80::7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`,
			},
		},
		{
			name: "IPv6 alone on InfiniBand", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(ib("ib0", "mlx5_0", "fd00::2/64"))},
			want:   []string{`want default/a 239.1.1.7 FullMember on "s-p" ib0/1 (fd00::2): uid-p`},
		},
		{
			name: "IPv4 before IPv6 on InfiniBand", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(ib("ib0", "mlx5_0", "fd00::2/64", "10.1.0.2/24"))},
			want:   []string{`want default/a 239.1.1.7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`},
		},
		{
			name: "a P_Key child is an interface like others", groups: []Group{testGroup("a")}, pods: []Pod{hostPod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: ifaces(ib("ib0", "mlx5_0", "10.1.0.2/24"), ib("ib0.8001", "mlx5_0", "10.2.0.2/24"))},
			want: []string{
				`want default/a 239.1.1.7 FullMember on "" ib0/1 (10.1.0.2): uid-p`,
				`want default/a 239.1.1.7 FullMember on "" ib0.8001/1 (10.2.0.2): uid-p`,
			},
		},
		{
			name: "a port that can't", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			unable: map[Port]Problem{{"rxe1", 1}: {"RoCEv1", "rxe1 port 1: RoCE v1"}, {"mlx5_2", 2}: {"NoVerbs", ""}},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1, net2)},
			want:   []string{`want default/a 239.1.1.7 FullMember on "s-p" net2/1 (10.9.0.2): uid-p`, "Refused uid-p: default/a@net1 RoCEv1"}, message: "interface net1 can't be used: rxe1 port 1: RoCE v1",
		},
		{
			name: "no IPv4 address yet", groups: []Group{testGroup("a")}, pods: []Pod{pod("p", ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(roce("net1", "rxe1", "fd00::1/64"))},
			want:   []string{"Waiting uid-p: default/a@net1 NoInterfaceAddress"},
		},
		{
			name:   "two groups with one address: the first pod's wins",
			groups: []Group{testGroup("b"), testGroup("a", func(g *Group) { g.PortSpace = rdma.PortSpaceIPoIB })}, pods: []Pod{pod("p", ask("a"), ask("b"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1)},
			want:   []string{wantA, "Waiting uid-p: default/b@net1 AddressInUse"}, message: "is MulticastGroup default/a's",
		},
		{
			name:   "on InfiniBand the port spaces are two",
			groups: []Group{testGroup("b"), testGroup("a", func(g *Group) { g.PortSpace = rdma.PortSpaceIPoIB })}, pods: []Pod{pod("p", ask("a"), ask("b"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(ib("ib0", "mlx5_0", "10.1.0.2/24"))},
			want: []string{
				`want default/a 239.1.1.7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`,
				`want default/b 239.1.1.7 FullMember on "s-p" ib0/1 (10.1.0.2): uid-p`,
			},
		},
		{
			name:   "a pod's limit refuses the excess only",
			groups: []Group{testGroup("a"), testGroup("b", at("239.1.1.8")), testGroup("c", at("239.1.1.9"))},
			pods:   []Pod{pod("p", ask("a"), ask("b"), ask("a", on("net1"))), pod("q", ask("c"))},
			ifaces: map[string]Interfaces{NodeScope: node, "s-p": ifaces(net1), "s-q": ifaces(net1)}, limits: Limits{PerPod: 1},
			want: []string{
				wantA, `want default/c 239.1.1.9 FullMember on "s-q" net1/1 (10.0.0.2): uid-q`,
				"Refused uid-p: default/b@net1 PodLimitReached",
			},
			message: "1 memberships already",
		},
		{
			name:   "the node's limit refuses the younger pod's; what is shared counts once",
			groups: []Group{testGroup("a"), testGroup("b", at("239.1.1.8"))},
			pods:   []Pod{hostPod("z", ask("a")), hostPod("a", ask("b"), ask("a"))},
			ifaces: map[string]Interfaces{NodeScope: node}, limits: Limits{PerNode: 1},
			want: []string{
				`want default/a 239.1.1.7 FullMember on "" rdma0/1 (192.168.0.1): uid-a uid-z`,
				"Refused uid-a: default/b@rdma0 NodeLimitReached",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wanted, verdicts := Plan(tt.groups, tt.pods, Node{Unable: tt.unable}, tt.ifaces, tt.limits)
			if diff := cmp.Diff(tt.want, show(wanted, verdicts)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if tt.message != "" && (len(verdicts) == 0 || !strings.Contains(verdicts[0].Message, tt.message)) {
				t.Errorf("verdicts %+v: want a message with %q", verdicts, tt.message)
			}
			for _, w := range wanted {
				if w.Scope == NodeScope && w.NetNS != "" || w.Scope != NodeScope && w.NetNS == "" {
					t.Errorf("namespace %q in scope %q", w.NetNS, w.Scope)
				}
			}
			// Which was there first, and in which order lists come, makes no difference.
			slices.Reverse(tt.groups)
			for _, i := range tt.ifaces {
				slices.Reverse(i.RDMA)
			}
			again, verdictsAgain := Plan(tt.groups, tt.pods, Node{Unable: tt.unable}, tt.ifaces, tt.limits)
			if diff := cmp.Diff(wanted, again, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("in another order (-first +second):\n%s", diff)
			}
			if diff := cmp.Diff(verdicts, verdictsAgain); diff != "" {
				t.Errorf("verdicts in another order (-first +second):\n%s", diff)
			}
		})
	}
}

func TestSelector(t *testing.T) {
	iface := roce("net1", "mlx5_2", "10.0.0.2/24", "10.9.0.2/24")
	subnet := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	tests := map[string]struct {
		selector Selector
		want     bool
	}{
		"empty":                       {Selector{}, true},
		"link layer":                  {Selector{LinkLayers: []string{"Ethernet"}}, true},
		"another link layer":          {Selector{LinkLayers: []string{"InfiniBand"}}, false},
		"one of two link layers":      {Selector{LinkLayers: []string{"InfiniBand", "Ethernet"}}, true},
		"device":                      {Selector{Devices: []string{"mlx5_[0-3]"}}, true},
		"another device":              {Selector{Devices: []string{"rxe*"}}, false},
		"interface":                   {Selector{Interfaces: []string{"eth*", "net?"}}, true},
		"another interface":           {Selector{Interfaces: []string{"net1?"}}, false},
		"a malformed pattern":         {Selector{Interfaces: []string{"net[1"}}, false},
		"a malformed pattern, or not": {Selector{Interfaces: []string{"net[1", "net1"}}, true},
		"subnet of the second":        {Selector{Subnets: subnet("10.9.0.0/16")}, true},
		"another subnet":              {Selector{Subnets: subnet("10.8.0.0/16")}, false},
		"all match":                   {Selector{LinkLayers: []string{"Ethernet"}, Devices: []string{"mlx5_*"}, Interfaces: []string{"net*"}, Subnets: subnet("10.0.0.0/24")}, true},
		"all but one match":           {Selector{LinkLayers: []string{"Ethernet"}, Devices: []string{"mlx5_*"}, Interfaces: []string{"eth*"}, Subnets: subnet("10.0.0.0/24")}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.selector.matches(iface); got != tt.want {
				t.Errorf("matches = %t, want %t", got, tt.want)
			}
			g := testGroup("a", func(g *Group) { g.Selector = tt.selector })
			for _, r := range []Request{ask("a"), ask("a", on("net1"))} {
				wanted, verdicts := Plan([]Group{g}, []Pod{pod("p", r)}, Node{}, map[string]Interfaces{"s-p": ifaces(iface)}, Limits{})
				if (len(wanted) == 1) != tt.want {
					t.Errorf("request %+v: wanted %+v", r, wanted)
				}
				if !tt.want && (len(verdicts) != 1 || verdicts[0].Reason != ReasonNotSelected) {
					t.Errorf("request %+v: verdicts %+v, want one: %s", r, verdicts, ReasonNotSelected)
				}
			}
		})
	}
}

// Port space IPoIB is for IPoIB interfaces: rdma_cm binds it to no other.
func TestPlanPortSpace(t *testing.T) {
	group := testGroup("a", func(g *Group) { g.PortSpace = rdma.PortSpaceIPoIB })
	for link, want := range map[string]rdma.PortSpace{"net1": rdma.PortSpaceUDP, "ib0": rdma.PortSpaceIPoIB} {
		interfaces := map[string]Interfaces{"s-p": ifaces(roce("net1", "rxe1", "10.0.0.2/24"), ib("ib0", "mlx5_0", "10.1.0.2/24"))}
		wanted, verdicts := Plan([]Group{group}, []Pod{pod("p", ask("a", on(link)))}, Node{}, interfaces, Limits{})
		if len(wanted) != 1 || len(verdicts) != 0 || wanted[0].PortSpace != want {
			t.Errorf("on %s: wanted %+v, verdicts %+v: want port space %#x", link, wanted, verdicts, want)
		}
	}
}
