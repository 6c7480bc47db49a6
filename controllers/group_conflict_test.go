package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

func (w *world) createSpec(t *testing.T, namespace, name string, spec v1alpha1.MulticastGroupSpec) *v1alpha1.MulticastGroup {
	t.Helper()
	g := &v1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	if err := w.client.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	return g
}

// A verbatim MGID is the address that a port may map to it, whatever its P_Key
// and scope.
func testMGIDConflict(t *testing.T, w *world) {
	w.start(t, quick)
	ns := w.namespace(t)
	mgid := func(m string) v1alpha1.MulticastGroupSpec { return v1alpha1.MulticastGroupSpec{MGID: m} }
	w.accepted(t, w.create(t, ns, "address", "239.1.1.7"))
	refused := w.createSpec(t, ns, "mapped", mgid("ff15:4001:8001::f01:107"))
	got := w.condition(t, refused, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionAccepted); !strings.Contains(c.Message, ns+"/address") ||
		!strings.Contains(c.Message, "239.1.1.7, which is one with ff15:4001:8001::f01:107 on InfiniBand") {
		t.Errorf("message %q", c.Message)
	}
	w.accepted(t, w.createSpec(t, ns, "sockets", mgid("ff15:401b:8001::f01:107")))
	verbatim := w.accepted(t, w.createSpec(t, ns, "verbatim", mgid("ff15:a01b:fe80::7")))
	again := w.create(t, ns, "again", "ff15:a01b:fe80::7")
	w.condition(t, again, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
	w.delete(t, verbatim)
	w.gone(t, verbatim)
	w.accepted(t, again)
}

// A group that another one holds off doesn't hold off a third, that the other one
// has nothing to do with.
func testConflictChain(t *testing.T, w *world) {
	w.start(t, quick)
	ns := w.namespace(t)
	on := func(layers ...v1alpha1.LinkLayer) v1alpha1.MulticastGroupSpec {
		return v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: layers}}
	}
	ethernet := w.accepted(t, w.createSpec(t, ns, "ethernet", on(v1alpha1.LinkLayerEthernet)))
	both := w.createSpec(t, ns, "both", on())
	w.condition(t, both, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
	infiniBand := w.accepted(t, w.createSpec(t, ns, "infiniband", on(v1alpha1.LinkLayerInfiniBand)))
	w.delete(t, ethernet)
	w.gone(t, ethernet)
	eventually(t, "the one that holds both off is infiniband", func() error {
		got := w.condition(t, both, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
		if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionAccepted); !strings.Contains(c.Message, ns+"/infiniband") {
			return fmt.Errorf("message %q", c.Message)
		}
		return nil
	})
	w.accepted(t, infiniBand)
}

// Groups of one address that are made at the same moment: at no moment are two of
// them accepted, and the one that is stays so.
func testConflictRace(t *testing.T, w *world) {
	const addresses, rivals = 20, 4
	ns := w.namespace(t)
	tap, _ := w.start(t, quick)
	var created sync.WaitGroup
	for i := range addresses {
		for j := range rivals {
			g := &v1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("g%d-%d", i, j)}}
			g.Spec.Address = fmt.Sprintf("ff1%c::%x", "58ae"[j], i+1) // to InfiniBand, all of them are one
			created.Go(func() {
				if err := w.client.Create(t.Context(), g); err != nil {
					t.Error(err)
				}
			})
		}
	}
	created.Wait()
	var written []v1alpha1.MulticastGroup
	eventually(t, "all groups are judged", func() (err error) {
		if written, err = tap.groups(); err != nil {
			return err
		}
		judged := map[types.UID]bool{}
		for _, g := range written {
			judged[g.UID] = true
		}
		if len(judged) < addresses*rivals {
			return fmt.Errorf("%d of %d", len(judged), addresses*rivals)
		}
		return nil
	})
	accepted := map[string]types.UID{} // by what is the same in their addresses
	for _, g := range written {
		address, uid := g.Spec.Address[len("ff15"):], g.UID
		switch is := meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionAccepted); {
		case is && accepted[address] == "":
			accepted[address] = uid
		case is && accepted[address] != uid:
			t.Errorf("%s was accepted while another group of its address was", g.Name)
		case !is && accepted[address] == uid:
			t.Errorf("%s was accepted, and then wasn't any more: %+v", g.Name, g.Status.Conditions)
		}
	}
	if len(accepted) != addresses {
		t.Errorf("%d addresses have a group that is accepted, want %d", len(accepted), addresses)
	}
}

// While the acceptance of a group is on its way to the API server, nobody else is
// judged: a rival of the same second may have the better right to the address, and
// would be accepted beside it.
func testConflictInFlight(t *testing.T, w *world) {
	tap, _ := w.start(t, quick)
	ns := w.namespace(t)
	held := tap.hold("first")
	t.Cleanup(held.release)
	first := w.create(t, ns, "first", "239.1.1.7")
	select {
	case <-held.came:
	case <-time.After(patience):
		t.Fatal("first is never judged")
	}
	var rivals []*v1alpha1.MulticastGroup
	for i := range 8 {
		rivals = append(rivals, w.create(t, ns, fmt.Sprintf("rival%d", i), "239.1.1.7"))
	}
	eventually(t, "the other workers have taken rivals up", func() error {
		var list v1alpha1.MulticastGroupList
		if err := w.client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err
		}
		taken := 0
		for i := range list.Items {
			taken += len(list.Items[i].Finalizers)
		}
		if taken < 1+3 {
			return fmt.Errorf("%d finalizers", taken)
		}
		return nil
	})
	<-time.After(time.Second) // for what must not happen
	if written, err := tap.groups(); err != nil || len(written) > 0 {
		t.Fatalf("judged meanwhile: %v, %+v", err, written)
	}
	held.release()
	w.accepted(t, first)
	for _, g := range rivals {
		w.condition(t, g, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
	}
	w.accepted(t, first)
}

// Two groups of one Ethernet address are told, each by one event, until one goes.
func testEthernetAddress(t *testing.T, w *world) {
	w.start(t, quick)
	ns := w.namespace(t)
	const unique = v1alpha1.ConditionEthernetAddressUnique
	first := w.create(t, ns, "first", "239.1.1.7")
	w.condition(t, first, unique, metav1.ConditionTrue, v1alpha1.ReasonNotShared)
	second := w.create(t, ns, "second", "239.129.1.7")
	for group, other := range map[*v1alpha1.MulticastGroup]string{first: "/second (239.129.1.7)", second: "/first (239.1.1.7)"} {
		got := w.condition(t, group, unique, metav1.ConditionFalse, v1alpha1.ReasonEthernetAddressShared)
		if c := meta.FindStatusCondition(got.Status.Conditions, unique); !strings.Contains(c.Message, "01:00:5e:01:01:07") || !strings.Contains(c.Message, ns+other) {
			t.Errorf("message %q of %s", c.Message, group.Name)
		}
		if note := w.event(t, group, v1alpha1.ReasonEthernetAddressShared); !strings.Contains(note, ns+other) {
			t.Errorf("event says %q", note)
		}
		w.accepted(t, group) // it is a warning
	}
	infiniBand := w.createSpec(t, ns, "infiniband", v1alpha1.MulticastGroupSpec{
		Address: "224.129.1.7", InterfaceSelector: &v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand}},
	})
	w.condition(t, infiniBand, unique, metav1.ConditionTrue, v1alpha1.ReasonNotOnEthernet)
	// One that isn't in force shares with nobody.
	refused := w.create(t, ns, "refused", "239.1.1.7")
	w.condition(t, refused, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)

	third := w.create(t, ns, "third", "238.129.1.7")
	w.condition(t, third, unique, metav1.ConditionFalse, v1alpha1.ReasonEthernetAddressShared)
	eventually(t, "first is told of both", func() error {
		got := w.condition(t, first, unique, metav1.ConditionFalse, v1alpha1.ReasonEthernetAddressShared)
		if c := meta.FindStatusCondition(got.Status.Conditions, unique); !strings.Contains(c.Message, ns+"/second (239.129.1.7), "+ns+"/third (238.129.1.7)") {
			return fmt.Errorf("message %q", c.Message)
		}
		return nil
	})
	for _, g := range []*v1alpha1.MulticastGroup{second, third} {
		w.delete(t, g)
		w.gone(t, g)
	}
	w.condition(t, first, unique, metav1.ConditionTrue, v1alpha1.ReasonNotShared)
	told := 0
	for _, e := range w.events(t, first) {
		if strings.HasPrefix(e, v1alpha1.ReasonEthernetAddressShared+":") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events, want 1: %q", told, w.events(t, first))
	}
	if e := w.events(t, infiniBand); slices.ContainsFunc(e, func(e string) bool { return strings.HasPrefix(e, v1alpha1.ReasonEthernetAddressShared) }) {
		t.Errorf("a group without an Ethernet address has events %q", e)
	}
}
