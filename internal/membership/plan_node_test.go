package membership

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// warm makes the nodes with these labels members.
func warm(labels map[string]string) func(*Group) {
	return func(g *Group) { g.Nodes = &NodeMembers{Labels: labels} }
}

func TestPlanNodeMembers(t *testing.T) {
	rackA := map[string]string{"rack": "a"}
	rdma0 := roce("rdma0", "rxe0", "192.168.0.1/24")
	ib0 := ib("ib0", "mlx5_0", "10.1.0.1/24")
	const wantA = `want default/a 239.1.1.7 FullMember on "" rdma0/1 (192.168.0.1): node`

	tests := []struct {
		name    string
		groups  []Group
		pods    []Pod
		labels  map[string]string
		ifaces  Interfaces
		limits  Limits
		want    []string
		message string // of the last verdict
	}{
		{name: "a label that the node has", groups: []Group{testGroup("a", warm(rackA))}, labels: map[string]string{"rack": "a", "zone": "1"}, ifaces: ifaces(rdma0), want: []string{wantA}},
		{name: "another value", groups: []Group{testGroup("a", warm(rackA))}, labels: map[string]string{"rack": "b"}, ifaces: ifaces(rdma0)},
		{name: "without the label", groups: []Group{testGroup("a", warm(rackA))}, ifaces: ifaces(rdma0)},
		{name: "an empty value isn't an absent label", groups: []Group{testGroup("a", warm(map[string]string{"rack": ""}))}, ifaces: ifaces(rdma0)},
		{name: "one of two labels", groups: []Group{testGroup("a", warm(map[string]string{"rack": "a", "zone": "1"}))}, labels: rackA, ifaces: ifaces(rdma0)},
		{name: "no labels: every node", groups: []Group{testGroup("a", warm(nil))}, ifaces: ifaces(rdma0), want: []string{wantA}},
		{name: "no node", groups: []Group{testGroup("a")}, labels: rackA, ifaces: ifaces(rdma0)},
		{
			name: "every interface", groups: []Group{testGroup("a", warm(rackA))}, labels: rackA, ifaces: ifaces(rdma0, ib0),
			want: []string{`want default/a 239.1.1.7 FullMember on "" ib0/1 (10.1.0.1): node`, wantA},
		},
		{
			name: "those that are selected", groups: []Group{testGroup("a", warm(rackA), selecting("rdma*"))}, labels: rackA, ifaces: ifaces(rdma0, ib0),
			want: []string{wantA},
		},
		{
			name: "as the group says", groups: []Group{testGroup("a", warm(rackA), func(g *Group) { g.Mode = rdma.SendOnlyFullMember })}, labels: rackA, ifaces: ifaces(rdma0),
			want: []string{strings.Replace(wantA, "FullMember", "SendOnlyFullMember", 1)},
		},
		{
			name: "shared with pods, and full for both", groups: []Group{testGroup("a", warm(rackA))}, labels: rackA, ifaces: ifaces(rdma0),
			pods: []Pod{hostPod("p", ask("a", as(rdma.SendOnlyFullMember)))},
			want: []string{wantA + " uid-p"},
		},
		{
			name: "a pod's own interface is another membership", groups: []Group{testGroup("a", warm(rackA))}, labels: rackA, ifaces: ifaces(rdma0),
			pods: []Pod{pod("p", ask("a"))},
			want: []string{wantA, `want default/a 239.1.1.7 FullMember on "s-p" net1/1 (10.0.0.2): uid-p`},
		},
		{name: "not accepted: the group says so", groups: []Group{testGroup("a", warm(rackA), func(g *Group) { g.Accepted = false })}, labels: rackA, ifaces: ifaces(rdma0)},
		{name: "being deleted: the group says so", groups: []Group{testGroup("a", warm(rackA), func(g *Group) { g.Deleting = true })}, labels: rackA, ifaces: ifaces(rdma0)},
		{
			name: "no RDMA interface", groups: []Group{testGroup("a", warm(rackA))}, labels: rackA, ifaces: ifaces("eth0"),
			want: []string{"Refused node: default/a@ NoRDMAInterface"}, message: "the node has no RDMA interface",
		},
		{
			name: "none selected", groups: []Group{testGroup("a", warm(rackA), selecting("ib*"))}, labels: rackA, ifaces: ifaces(rdma0),
			want: []string{"Refused node: default/a@ NotSelected"}, message: "rdma0",
		},
		{name: "every node with an RDMA interface: it has none", groups: []Group{testGroup("a", warm(nil))}, ifaces: ifaces("eth0")},
		{name: "every node with one that is selected: none is", groups: []Group{testGroup("a", warm(nil), selecting("ib*"))}, ifaces: ifaces(rdma0)},
		{
			name: "unsupported", groups: []Group{testGroup("a", warm(nil), verbatim("ff15:a01b::7"))}, ifaces: ifaces(rdma0),
			want: []string{"Refused node: default/a@rdma0 UnsupportedAddress"}, message: "MGID",
		},
		{
			name: "interfaces can't be listed", groups: []Group{testGroup("a", warm(nil))}, ifaces: Interfaces{Err: errors.New("no rdma_cm")},
			want: []string{"Waiting node: default/a@ InterfacesUnknown"}, message: "no rdma_cm",
		},
		{
			name:   "pods come first where a limit is reached, whatever the order of groups",
			groups: []Group{testGroup("a", warm(nil)), testGroup("b", at("239.1.1.8"))}, ifaces: ifaces(rdma0),
			pods: []Pod{hostPod("p", ask("b"))}, limits: Limits{PerNode: 1, PerPod: 1},
			want: []string{`want default/b 239.1.1.8 FullMember on "" rdma0/1 (192.168.0.1): uid-p`, "Refused node: default/a@rdma0 NodeLimitReached"},
		},
		{
			name:   "pods come first where the node takes part in no more groups",
			groups: []Group{testGroup("a", warm(nil)), testGroup("b", at("239.1.1.8"))}, ifaces: ifaces(rdma0),
			pods: []Pod{hostPod("p", ask("b"))}, limits: Limits{Groups: 1}, message: "takes part in 1 groups already",
			want: []string{`want default/b 239.1.1.8 FullMember on "" rdma0/1 (192.168.0.1): uid-p`, "Refused node: default/a@rdma0 NodeLimitReached"},
		},
		{
			name:   "a pod's limit isn't the node's",
			groups: []Group{testGroup("a", warm(nil)), testGroup("b", at("239.1.1.8"), warm(nil))}, ifaces: ifaces(rdma0), limits: Limits{PerPod: 1},
			want: []string{wantA, `want default/b 239.1.1.8 FullMember on "" rdma0/1 (192.168.0.1): node`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			interfaces := map[string]Interfaces{NodeScope: tt.ifaces, "s-p": ifaces(roce("net1", "rxe1", "10.0.0.2/24"))}
			wanted, verdicts := Plan(tt.groups, tt.pods, Node{Labels: tt.labels}, interfaces, tt.limits)
			if diff := cmp.Diff(tt.want, show(wanted, verdicts)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if n := len(verdicts); tt.message != "" && (n == 0 || !strings.Contains(verdicts[n-1].Message, tt.message)) {
				t.Errorf("verdicts %+v: want a message with %q", verdicts, tt.message)
			}
			slices.Reverse(tt.groups)
			again, verdictsAgain := Plan(tt.groups, tt.pods, Node{Labels: tt.labels}, interfaces, tt.limits)
			if diff := cmp.Diff(show(wanted, verdicts), show(again, verdictsAgain)); diff != "" {
				t.Errorf("with the groups in another order (-first +second):\n%s", diff)
			}
		})
	}
}

func selecting(interfaces string) func(*Group) {
	return func(g *Group) { g.Selector.Interfaces = []string{interfaces} }
}

// An InfiniBand port has one join state of an MGID, whichever interfaces and
// pods ask; another P_Key is another MGID.
func TestPlanOneJoinStatePerPort(t *testing.T) {
	child := func(name string, pkey uint16) rdma.Interface {
		i := ib(name, "mlx5_0", "10.1.0.2/24")
		i.PKey = pkey
		return i
	}
	interfaces := map[string]Interfaces{
		"s-p": ifaces(child("net1", 0xffff)), "s-q": ifaces(child("net1", 0x7fff)), "s-r": ifaces(child("net1", 0x8001)),
		"s-s": ifaces(roce("net1", "rxe0", "10.0.0.2/24")), "s-t": ifaces(roce("net1", "rxe0", "10.0.0.3/24")),
	}
	sendOnly := as(rdma.SendOnlyFullMember)
	pods := []Pod{pod("p", ask("a")), pod("q", ask("a", sendOnly)), pod("r", ask("a", sendOnly)), pod("s", ask("a")), pod("t", ask("a", sendOnly))}
	wanted, _ := Plan([]Group{testGroup("a")}, pods, Node{}, interfaces, Limits{})
	if len(wanted) != len(pods) {
		t.Fatalf("wanted %+v", wanted)
	}
	for _, w := range wanted {
		if w.PortFull != (w.Scope == "s-q") {
			t.Errorf("%s: PortFull is %t", w.Scope, w.PortFull)
		}
	}
}
