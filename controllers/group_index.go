package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// Fields that the cache is indexed by.
const (
	addressIndex  = "fabricAddress"   // of a MulticastGroup
	ethernetIndex = "ethernetAddress" // likewise
	entryIndex    = "groupUID"        // of a MulticastNode, one value per entry
)

func indexFields(mgr ctrl.Manager) error {
	indexer := mgr.GetFieldIndexer()
	// The context ends the wait for the cache, which hasn't started.
	ctx := context.Background()
	if err := indexer.IndexField(ctx, &v1alpha1.MulticastGroup{}, addressIndex, func(o client.Object) []string {
		return addressKeys(&o.(*v1alpha1.MulticastGroup).Spec)
	}); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &v1alpha1.MulticastGroup{}, ethernetIndex, func(o client.Object) []string {
		if mac, ok := ethernetAddress(&o.(*v1alpha1.MulticastGroup).Spec); ok {
			return []string{mac}
		}
		return nil
	}); err != nil {
		return err
	}
	return indexer.IndexField(ctx, &v1alpha1.MulticastNode{}, entryIndex, func(o client.Object) []string {
		groups := o.(*v1alpha1.MulticastNode).Status.Groups
		uids := make([]string, len(groups))
		for i := range groups {
			uids[i] = string(groups[i].UID)
		}
		return uids
	})
}

// rivalsOf lists, from the cache and without g, the groups that may have an
// address on the fabric in common with g, and those that may with one of these,
// and so on: a group that another one holds off doesn't hold g off.
func rivalsOf(ctx context.Context, cached client.Reader, g *v1alpha1.MulticastGroup) ([]v1alpha1.MulticastGroup, error) {
	var rivals []v1alpha1.MulticastGroup
	found := map[types.UID]bool{g.UID: true}
	keys := addressKeys(&g.Spec)
	for asked := 0; asked < len(keys); asked++ {
		var list v1alpha1.MulticastGroupList
		if err := cached.List(ctx, &list, client.MatchingFields{addressIndex: keys[asked]}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if found[list.Items[i].UID] {
				continue
			}
			found[list.Items[i].UID] = true
			rivals = append(rivals, list.Items[i])
			for _, key := range addressKeys(&list.Items[i].Spec) {
				if !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
		}
	}
	return rivals, nil
}

// seesInherited is an error while the cache doesn't know a group that is in force:
// another controller, whose place this one has taken, may have accepted it a moment
// ago.
func seesInherited(ctx context.Context, cached, live client.Reader) error {
	var inForce, known v1alpha1.MulticastGroupList
	if err := live.List(ctx, &inForce); err != nil {
		return fmt.Errorf("listing groups before the first one is judged: %w", err)
	}
	if err := cached.List(ctx, &known, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	seen := make(map[types.UID]int64, len(known.Items)) // the generation: an edit may bring another address
	for i := range known.Items {
		seen[known.Items[i].UID] = known.Items[i].Generation
	}
	for i := range inForce.Items {
		g := &inForce.Items[i]
		if seen[g.UID] < g.Generation && meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("the cache doesn't have group %s, which is in force, as it is now", client.ObjectKeyFromObject(g))
		}
	}
	return nil
}

// neighboursOf lists, from the cache, the groups with g's Ethernet address, g
// included. They must not be changed.
func neighboursOf(ctx context.Context, cached client.Reader, g *v1alpha1.MulticastGroup) ([]v1alpha1.MulticastGroup, error) {
	mac, ok := ethernetAddress(&g.Spec)
	if !ok {
		return nil, nil
	}
	var list v1alpha1.MulticastGroupList
	err := cached.List(ctx, &list, client.MatchingFields{ethernetIndex: mac}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// rivalRequests has a group's rivals and neighbours looked at when it changes or
// goes: one of them may have its address next.
func rivalRequests(cached client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		g := o.(*v1alpha1.MulticastGroup)
		rivals, err := rivalsOf(ctx, cached, g)
		neighbours, errNeighbours := neighboursOf(ctx, cached, g)
		if errors.Join(err, errNeighbours) != nil {
			// Only an index that isn't there: setup would have failed.
			return nil
		}
		var requests []reconcile.Request
		for _, others := range [][]v1alpha1.MulticastGroup{rivals, neighbours} {
			for i := range others {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&others[i])})
			}
		}
		return requests
	})
}

// entryRequests has those groups looked at whose entry in a MulticastNode came,
// changed or went.
func entryRequests() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(before, after client.Object, q queue) {
		for name := range changedEntries(before, after) {
			q.Add(reconcile.Request{NamespacedName: name})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(nil, e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, nil, q) },
	}
}

// changedEntries are the groups whose entries differ between two states of a
// MulticastNode.
func changedEntries(before, after client.Object) map[types.NamespacedName]bool {
	was, is := entriesByUID(before), entriesByUID(after)
	changed := map[types.NamespacedName]bool{}
	for uid, e := range was {
		if is[uid] != e {
			changed[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = true
		}
	}
	for uid, e := range is {
		if was[uid] != e {
			changed[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = true
		}
	}
	return changed
}

func entriesByUID(o client.Object) map[types.UID]v1alpha1.NodeGroup {
	node, ok := o.(*v1alpha1.MulticastNode)
	if !ok {
		return nil
	}
	entries := make(map[types.UID]v1alpha1.NodeGroup, len(node.Status.Groups))
	for _, e := range node.Status.Groups {
		entries[e.UID] = e
	}
	return entries
}
