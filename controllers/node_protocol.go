package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
)

const (
	// maxNodeGroups is how many entries a MulticastNode takes.
	maxNodeGroups = 2048
	// maxEntryMessage is how many bytes the message of an entry takes.
	maxEntryMessage = 256
	// beginTimeout bounds how long a first join waits for the API server.
	beginTimeout = 30 * time.Second
)

var _ membership.Protocol = (*NodeRecord)(nil)

// Begin implements membership.Protocol: it writes the entry of a group, then
// reads the group live. Either the controller, which lets a deleted group go,
// sees the entry, or the read sees the deletion.
//
// Errors: membership.ErrGroupGone where the group was deleted, is being deleted,
// is another one by now, or isn't accepted in this generation; others where the
// node has no room for another entry, or where the API server doesn't answer.
// After any of them the entry has been taken back.
func (r *NodeRecord) Begin(ctx context.Context, groupUID, namespace, name string, generation int64) error {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	uid := types.UID(groupUID)
	err := r.await(ctx, func() error {
		e := r.entries[uid]
		if e == nil {
			if len(r.entries) >= maxNodeGroups && !r.makeRoom() {
				return fmt.Errorf("node %s takes part in %d groups already, the most that its MulticastNode holds: %s/%s can't be joined here",
					r.name, maxNodeGroups, namespace, name)
			}
			e = &recordEntry{NodeGroup: v1alpha1.NodeGroup{Namespace: namespace, Name: name, UID: uid}}
			r.entries[uid] = e
		}
		e.begun, e.inherited = true, false
		e.Generation = generation
		return nil
	})
	if err == nil {
		err = r.confirm(ctx, uid, namespace, name, generation)
	}
	if err != nil {
		r.takeBack(uid)
	}
	return err
}

// makeRoom takes away an entry that only tells why nothing can be joined; false:
// there is none. Called with the lock held.
func (r *NodeRecord) makeRoom() bool {
	for uid, e := range r.entries {
		if !e.begun && !e.inherited {
			delete(r.entries, uid)
			return true
		}
	}
	return false
}

// End implements membership.Protocol: it takes the entry of a group away. The
// group must have been left.
func (r *NodeRecord) End(ctx context.Context, groupUID string) error {
	return r.await(ctx, func() error {
		delete(r.entries, types.UID(groupUID))
		return nil
	})
}

// takeBack removes an entry of a group that wasn't joined after all. Nobody
// waits for the write.
func (r *NodeRecord) takeBack(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.entries[uid]; ok {
		delete(r.entries, uid)
		r.changed(0)
	}
}

// confirm reads the group past the cache.
func (r *NodeRecord) confirm(ctx context.Context, uid types.UID, namespace, name string, generation int64) error {
	if !checksGroupLive {
		return nil
	}
	var group v1alpha1.MulticastGroup
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &group)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("MulticastGroup %s/%s: %w", namespace, name, membership.ErrGroupGone)
	case err != nil:
		return fmt.Errorf("reading MulticastGroup %s/%s: %w", namespace, name, err)
	case group.UID != uid:
		return fmt.Errorf("MulticastGroup %s/%s was made anew: %w", namespace, name, membership.ErrGroupGone)
	case group.DeletionTimestamp != nil:
		return fmt.Errorf("MulticastGroup %s/%s is being deleted: %w", namespace, name, membership.ErrGroupGone)
	}
	accepted := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionAccepted)
	if group.Generation != generation || accepted == nil || accepted.Status != metav1.ConditionTrue || accepted.ObservedGeneration != generation {
		return fmt.Errorf("MulticastGroup %s/%s isn't accepted in generation %d (it has generation %d): %w", namespace, name, generation, group.Generation, membership.ErrGroupGone)
	}
	return nil
}

func sortNodeGroups(groups []v1alpha1.NodeGroup) {
	slices.SortFunc(groups, func(a, b v1alpha1.NodeGroup) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// truncate cuts s to at most limit bytes, between characters, and marks the
// cut. The limit must be at least three.
func truncate(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
