package controllers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// clearancePage is how many MulticastNodes are read at once. All pages of one
// LIST are of one state of the API server.
const clearancePage = 250

// clearance finds out whether a group that is being deleted may go: by a LIST
// of the MulticastNodes, past the cache, that started after the deletion was
// seen. Either this LIST sees a node's entry, or the node wrote it later and
// its live GET of the group sees the deletion; so what a LIST has cleared stays
// cleared. One LIST serves all groups that were being deleted when it started.
type clearance struct {
	cached, live client.Reader

	mu      sync.Mutex
	cleared map[types.UID]bool // by the last LIST
}

func newClearance(cached, live client.Reader) *clearance {
	return &clearance{cached: cached, live: live}
}

// of tells whether no node names the group, whose deletion the caller has seen.
func (c *clearance) of(ctx context.Context, uid types.UID) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cleared[uid] {
		return true, nil
	}
	var groups v1alpha1.MulticastGroupList
	if err := c.cached.List(ctx, &groups, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	unnamed := map[types.UID]bool{uid: true}
	for i := range groups.Items {
		if !groups.Items[i].DeletionTimestamp.IsZero() {
			unnamed[groups.Items[i].UID] = true
		}
	}
	nodes := v1alpha1.MulticastNodeList{}
	for {
		if err := c.live.List(ctx, &nodes, client.Limit(clearancePage), client.Continue(nodes.Continue)); err != nil {
			return false, fmt.Errorf("listing MulticastNodes before a group is let go: %w", err)
		}
		for i := range nodes.Items {
			for _, e := range nodes.Items[i].Status.Groups {
				delete(unnamed, e.UID)
			}
		}
		if nodes.Continue == "" {
			break
		}
	}
	c.cleared = unnamed
	return unnamed[uid], nil
}
