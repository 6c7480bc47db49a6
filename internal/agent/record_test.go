package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/controllers"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
)

// record runs a NodeRecord of a world's node, as the agent.
func (w *world) record(gather time.Duration) *controllers.NodeRecord {
	w.t.Helper()
	c, err := client.New(w.network.config(), client.Options{Scheme: cluster.admin.Scheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	r := controllers.NewNodeRecord(c, w.node, "boot", gather, testr.New(w.t))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Start(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
		w.network.cut()
	})
	return r
}

// Those who begin a group at the same time share a few writes, and each returns
// only once its entry is written.
func TestBeginsShareWrites(t *testing.T) {
	w := newWorld(t)
	const number = 100
	groups := make([]*v1alpha1.MulticastGroup, number)
	for i := range groups {
		groups[i] = w.group(fmt.Sprintf("g%d", i), fmt.Sprintf("239.2.0.%d", i+1))
	}
	r := w.record(time.Hour)
	w.eventually("the object is there", func() error { _, err := w.multicastNode(); return err })
	before := w.network.nodeWrites.Load()

	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() {
			if err := r.Begin(t.Context(), string(g.UID), g.Namespace, g.Name, g.Generation); err != nil {
				t.Errorf("Begin %s: %v", g.Name, err)
				return
			}
			n, err := w.multicastNode()
			if err != nil {
				t.Error(err)
				return
			}
			for _, e := range n.Status.Groups {
				if e.UID == g.UID {
					return
				}
			}
			t.Errorf("Begin %s returned before its entry was written", g.Name)
		})
	}
	wg.Wait()
	if writes := w.network.nodeWrites.Load() - before; writes > number/4 {
		t.Errorf("%d groups took %d writes", number, writes)
	}
	for _, g := range groups {
		wg.Go(func() {
			if err := r.End(t.Context(), string(g.UID)); err != nil {
				t.Errorf("End %s: %v", g.Name, err)
			}
		})
	}
	wg.Wait()
	n, err := w.multicastNode()
	if err != nil || len(n.Status.Groups) > 0 {
		t.Errorf("entries left: %+v, %v", n.Status.Groups, err)
	}
}

// A group that isn't there to stay, or not accepted in the generation that was
// planned, isn't begun, and no entry stays.
func TestBeginRefused(t *testing.T) {
	w := newWorld(t)
	r := w.record(time.Hour)
	deleting := w.group("deleting", "239.2.0.1", func(g *v1alpha1.MulticastGroup) { g.Finalizers = []string{v1alpha1.GroupFinalizer} })
	w.delete(deleting)
	remade := w.group("remade", "239.2.0.2")
	w.delete(remade)
	w.group("remade", "239.2.0.2")
	gone := w.group("gone", "239.2.0.3")
	w.delete(gone)
	edited := w.group("edited", "239.2.0.4")
	generation := edited.Generation
	edited.Spec.AllowedNamespaces = []string{"x"}
	if err := cluster.admin.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	edited.Generation = generation
	refused := w.group("refused", "239.2.0.5")
	refused.Status.Conditions[0].Status = metav1.ConditionFalse
	if err := cluster.admin.Status().Update(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*v1alpha1.MulticastGroup{deleting, remade, gone, edited, refused} {
		t.Run(g.Name, func(t *testing.T) {
			err := r.Begin(t.Context(), string(g.UID), g.Namespace, g.Name, g.Generation)
			if !errors.Is(err, membership.ErrGroupGone) || !strings.Contains(err.Error(), g.Name) {
				t.Errorf("Begin = %v; want ErrGroupGone and the group's name", err)
			}
		})
	}
	w.wantEntries()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := cluster.admin.Patch(t.Context(), deleting, patch); err != nil {
		t.Fatal(err)
	}
}

// The API server takes 2,048 entries; the next is refused in so many words.
func TestEntriesAreBounded(t *testing.T) {
	w := newWorld(t)
	node := &v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
	w.create(node)
	for i := range 2048 {
		node.Status.Groups = append(node.Status.Groups, v1alpha1.NodeGroup{
			Namespace: w.namespace, Name: fmt.Sprintf("g%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)),
			Message: strings.Repeat("m", 256),
		})
	}
	if err := cluster.admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	r := w.record(time.Hour)
	r.SetDevices([]v1alpha1.NodeDevice{{Name: "rxe0", Port: 1}})
	g := w.group("orders", orders)
	w.eventually("the earlier entries are read", func() error {
		n, err := w.multicastNode()
		if err != nil || n.Status.BootID != "boot" {
			return fmt.Errorf("boot ID is %q, %w", n.Status.BootID, err)
		}
		return nil
	})
	err := r.Begin(t.Context(), string(g.UID), g.Namespace, g.Name, g.Generation)
	if err == nil || !strings.Contains(err.Error(), "2048") || !strings.Contains(err.Error(), w.node) {
		t.Errorf("Begin = %v; want it to name the node and the limit", err)
	}
}

// Somebody else's write of the object costs a conflict, not the entry.
func TestConflictIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	r := w.record(time.Hour)
	g := w.group("orders", orders)
	h := w.group("quotes", quotes)
	if err := r.Begin(t.Context(), string(g.UID), g.Namespace, g.Name, g.Generation); err != nil {
		t.Fatal(err)
	}
	n, err := w.multicastNode()
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Groups = nil
	if err := cluster.admin.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(t.Context(), string(h.UID), h.Namespace, h.Name, h.Generation); err != nil {
		t.Fatal(err)
	}
	w.wantEntries("orders 0/0", "quotes 0/0")

	w.delete(n)
	if err := r.End(t.Context(), string(h.UID)); err != nil {
		t.Fatal(err)
	}
	w.wantEntries("orders 0/0")
}

// Numbers are gathered, and written only where they differ.
func TestNumbersAreGathered(t *testing.T) {
	w := newWorld(t)
	r := w.record(300 * time.Millisecond)
	g := w.group("orders", orders)
	if err := r.Begin(t.Context(), string(g.UID), g.Namespace, g.Name, g.Generation); err != nil {
		t.Fatal(err)
	}
	before := w.network.nodeWrites.Load()
	for i := range 50 {
		r.SetGroups(map[types.UID]v1alpha1.NodeGroup{g.UID: {Namespace: g.Namespace, Name: g.Name, UID: g.UID, Members: int32(i + 1), Joined: int32(i)}}, false)
	}
	w.wantEntries("orders 49/50")
	if writes := w.network.nodeWrites.Load() - before; writes != 1 {
		t.Errorf("50 changes took %d writes", writes)
	}
}

// A group of which the node can't join anything has an entry that says so, and
// that holds up neither the pod's end nor the group's.
func TestEntryOfAGroupThatCantBeJoined(t *testing.T) {
	w := newWorld(t)
	w.start()
	six := w.group("six", "ff0e::1234")
	w.group("seven", "ff0e::1235")
	p := w.pod("app", "six,seven")
	p.wantCondition(corev1.ConditionFalse, "UnsupportedAddress")
	w.wantEntries("seven 0/1", "six 0/1")
	w.delete(six)
	w.wantEntries("seven 0/1")
	p.stop()
	w.wantEntries()
}

// While the API server is away, a Begin waits for it.
func TestBeginWaitsForTheAPIServer(t *testing.T) {
	w := newWorld(t)
	r := w.record(time.Hour)
	g := w.group("orders", orders)
	w.network.cut()
	done := make(chan error, 1)
	go func() { done <- r.Begin(t.Context(), string(g.UID), g.Namespace, g.Name, g.Generation) }()
	select {
	case err := <-done:
		t.Fatalf("Begin without the API server: %v", err)
	case <-time.After(500 * time.Millisecond): // long enough for a first attempt to have failed
	}
	w.network.mend()
	if err := <-done; err != nil {
		t.Errorf("Begin: %v", err)
	}
	w.wantEntries("orders 0/0")

	w.network.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := r.Begin(ctx, "another", g.Namespace, "another", 1)
	if err == nil || !strings.Contains(err.Error(), w.node) {
		t.Errorf("Begin = %v: want it to name the object that can't be written", err)
	}
	w.network.mend()
	w.wantEntries("orders 0/0")
}
