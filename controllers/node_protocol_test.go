package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// Entries that only tell of failures never take the place of a membership.
func TestFailuresMakeRoom(t *testing.T) {
	r := NewNodeRecord(nil, "n", "boot", 0, logr.Discard())
	failing := map[types.UID]v1alpha1.NodeGroup{}
	for i := range maxNodeGroups {
		uid := types.UID(fmt.Sprint("uid-", i))
		failing[uid] = v1alpha1.NodeGroup{Namespace: "ns", Name: string(uid), UID: uid, Members: 1, Failing: 1}
	}
	r.SetGroups(failing, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody writes
	err := r.Begin(ctx, "uid-joins", "ns", "joins", 1)
	if err == nil || strings.Contains(err.Error(), "the most that its MulticastNode holds") {
		t.Errorf("Begin: %v", err)
	}
	for uid := range r.entries {
		r.entries[uid].begun = true
	}
	r.entries["uid-last"] = &recordEntry{begun: true}
	err = r.Begin(ctx, "uid-joins", "ns", "joins", 1)
	if err == nil || !strings.Contains(err.Error(), "the most that its MulticastNode holds") {
		t.Errorf("Begin beside %d memberships: %v", len(r.entries), err)
	}
}
