package agent_test

import (
	"context"
	"fmt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

func warm(labels map[string]v1alpha1.LabelValue) func(*v1alpha1.MulticastGroup) {
	return func(g *v1alpha1.MulticastGroup) { g.Spec.Nodes = &v1alpha1.NodeMembers{NodeSelector: labels} }
}

func hostNetwork(p *corev1.Pod) { p.Spec.HostNetwork = true }

// label sets a label of the node; "" takes it away.
func (w *world) label(key, value string) {
	w.t.Helper()
	label := fmt.Sprintf("%q", value)
	if value == "" {
		label = "null"
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, label))
	node := &corev1.Node{}
	node.Name = w.node
	if err := cluster.admin.Patch(context.Background(), node, patch); err != nil {
		w.t.Fatal(err)
	}
}

// edit changes a group, and accepts the new generation as the controller would.
func (w *world) edit(g *v1alpha1.MulticastGroup, change func(*v1alpha1.MulticastGroup)) {
	w.t.Helper()
	if err := cluster.admin.Get(context.Background(), client.ObjectKeyFromObject(g), g); err != nil {
		w.t.Fatal(err)
	}
	change(g)
	if err := cluster.admin.Update(context.Background(), g); err != nil {
		w.t.Fatal(err)
	}
	w.accept(g)
}

// entry is the node's of a group.
func (w *world) entry(name string) (v1alpha1.NodeGroup, error) {
	node, err := w.multicastNode()
	if err != nil {
		return v1alpha1.NodeGroup{}, err
	}
	for _, g := range node.Status.Groups {
		if g.Name == name {
			return g, nil
		}
	}
	return v1alpha1.NodeGroup{}, fmt.Errorf("no entry of group %s in %+v", name, node.Status.Groups)
}

// wantNodeMember waits until the node's own interface is a member, or isn't.
func (w *world) wantNodeMember(group string, want bool) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the node's membership of %s is %t", group, want), func() error {
		if got := w.machine.IGMP("", "eth1")[netip.MustParseAddr(group)] > 0; got != want {
			return fmt.Errorf("it is %t", got)
		}
		return nil
	})
}

// A node is a member by its labels, which may change, as the group's selector
// may, without any pod.
func TestNodeMemberByLabels(t *testing.T) {
	w := newWorld(t)
	w.start()
	rackA := w.group("by-label", "239.3.0.1", warm(map[string]v1alpha1.LabelValue{"rack": "a"}))
	w.group("everywhere", "239.3.0.2", warm(nil))
	w.wantNodeMember("239.3.0.2", true)
	w.wantEntries("everywhere 1/1")

	w.label("rack", "a")
	w.wantNodeMember("239.3.0.1", true)
	w.wantEntries("by-label 1/1", "everywhere 1/1")
	w.label("rack", "b")
	w.wantNodeMember("239.3.0.1", false)
	w.wantEntries("everywhere 1/1")

	w.edit(rackA, warm(map[string]v1alpha1.LabelValue{"rack": "b"}))
	w.wantNodeMember("239.3.0.1", true)
	w.edit(rackA, func(g *v1alpha1.MulticastGroup) { g.Spec.Nodes = nil })
	w.wantNodeMember("239.3.0.1", false)
	w.wantEntries("everywhere 1/1")
	w.wantNodeMember("239.3.0.2", true)
}

// A pod on the node's interface shares the node's membership: neither ends the
// other's.
func TestNodeMemberShares(t *testing.T) {
	w := newWorld(t)
	w.start()
	g := w.group("shared", "239.3.0.3", warm(nil))
	w.wantNodeMember("239.3.0.3", true)
	before := len(w.machine.Memberships())
	p := w.pod("app", "shared", hostNetwork)
	p.wantJoined("239.3.0.3")
	w.wantEntries("shared 2/2")
	if after := len(w.machine.Memberships()); after != before {
		t.Errorf("the pod's membership is another one: %d, then %d", before, after)
	}
	epoch := p.epoch()
	w.edit(g, func(g *v1alpha1.MulticastGroup) { g.Spec.Nodes = nil })
	w.wantEntries("shared 1/1")
	w.edit(g, warm(nil))
	w.wantEntries("shared 2/2")
	if again := p.epoch(); again != epoch {
		t.Errorf("the pod's membership was joined anew: epoch %d, then %d", epoch, again)
	}
	p.stop()
	w.delete(p.Pod)
	w.wantEntries("shared 1/1")
	w.wantNodeMember("239.3.0.3", true)
}

// A node that should be a member and can't be says why in its entry; one that
// isn't meant doesn't.
func TestNodeMemberThatCannot(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.label("rack", "a")
	rack := map[string]v1alpha1.LabelValue{"rack": "a"}
	none := func(g *v1alpha1.MulticastGroup) {
		g.Spec.InterfaceSelector = &v1alpha1.InterfaceSelector{Interfaces: []string{"ib*"}}
	}
	w.group("mgid", "", warm(nil), func(g *v1alpha1.MulticastGroup) { g.Spec.MGID = "ff15:a01b::7" })
	w.group("not-selected", "239.3.0.4", warm(rack), none)
	w.group("not-meant", "239.3.0.5", warm(nil), none)
	w.wantEntries("mgid 0/1", "not-selected 0/1")
	for name, part := range map[string]string{"mgid": "the node on eth1: ", "not-selected": "the node: the group's interfaceSelector"} {
		w.eventually("the entry of "+name+" says why", func() error {
			e, err := w.entry(name)
			if err != nil || e.Failing != 1 || !strings.Contains(e.Message, part) {
				return fmt.Errorf("it is %+v, %w: want one failing, and %q", e, err, part)
			}
			return nil
		})
	}
	w.machine.AddNIC("mlx5_0", "ib0", netip.MustParsePrefix("198.51.100.1/24"))
	w.wantEntries("mgid 0/2", "not-meant 1/1", "not-selected 1/1")
}

// What applications send with is told, and changed without a rejoin.
func TestTrafficClassIsTold(t *testing.T) {
	w := newWorld(t)
	w.start()
	class := func(c int32) func(*v1alpha1.MulticastGroup) {
		return func(g *v1alpha1.MulticastGroup) { g.Spec.TrafficClass = &c }
	}
	g := w.group("marked", "239.3.0.6", class(184))
	p := w.pod("app", "marked")
	p.wantJoined("239.3.0.6")
	told := func(want int32) {
		t.Helper()
		w.eventually(fmt.Sprintf("traffic class %d is told", want), func() error {
			_, statuses, err := p.get()
			if err != nil || len(statuses) != 1 || statuses[0].TrafficClass != want {
				return fmt.Errorf("group-status is %+v, %w", statuses, err)
			}
			return nil
		})
	}
	told(184)
	epoch := p.epoch()
	w.edit(g, class(96))
	told(96)
	if again := p.epoch(); again != epoch {
		t.Errorf("the group was joined anew: epoch %d, then %d", epoch, again)
	}
}

// Whoever deletes the node's object by hand while the node is a member would let
// the group go early: it is written anew at once, with its entries.
func TestDeletedObjectIsMadeAnewAtOnce(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.group("held", "239.3.0.7", warm(nil))
	w.wantEntries("held 1/1")
	for range 3 {
		node, err := w.multicastNode()
		if err != nil {
			t.Fatal(err)
		}
		w.delete(node)
		w.eventually("the object is there again", func() error {
			again, err := w.multicastNode()
			if err != nil {
				return err
			}
			if again.UID == node.UID || len(again.Status.Groups) != 1 || again.Status.BootID == "" {
				return fmt.Errorf("it is %+v", again)
			}
			return nil
		})
	}
	node, err := w.multicastNode()
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Groups = nil
	if err := cluster.admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.wantEntries("held 1/1")
}

// Somebody else who writes the node's object all the time, a second agent for
// instance, is answered once in a while, not as fast as the API server can.
func TestAnotherWriterIsNoRace(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.wantNodeCondition(v1alpha1.ConditionRDMAReady, metav1.ConditionTrue, v1alpha1.ReasonSimulated)
	answered := 0
	for start := time.Now(); time.Since(start) < 4*time.Second; {
		node, err := w.multicastNode()
		if err != nil {
			t.Fatal(err)
		}
		if node.Status.BootID == "another" {
			continue
		}
		node.Status.BootID = "another"
		if err := cluster.admin.Status().Update(t.Context(), node); err == nil {
			answered++
		} else if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	if answered < 2 || answered > 10 {
		t.Errorf("the agent wrote the object %d times in 4 s", answered)
	}
}
