package controllers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// listing answers each LIST with its groups.
type listing struct {
	client.Reader
	groups []v1alpha1.MulticastGroup
	err    error
}

func (l listing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.MulticastGroupList).Items = l.groups
	return l.err
}

// A controller that has just taken over judges nothing before its cache has what
// the one before it accepted last.
func TestSeesInherited(t *testing.T) {
	accepted, edited := groupOf("a", "239.1.1.7", 5, 2), groupOf("b", "239.1.1.8", 5, 1)
	waiting, stale := groupOf("c", "239.1.1.9", 5, 0), groupOf("a", "239.1.1.7", 5, 0)
	elsewhere := accepted
	elsewhere.Generation = 1
	away := errors.New("the API server is away")
	groups := func(g ...v1alpha1.MulticastGroup) listing { return listing{groups: g} }
	for name, tc := range map[string]struct {
		cached, live listing
		want         string // "": no error
	}{
		"nothing":                      {},
		"all known":                    {cached: groups(accepted, edited), live: groups(edited, accepted)},
		"known, not yet as accepted":   {cached: groups(stale), live: groups(accepted)},
		"one that is in force missing": {cached: groups(accepted), live: groups(accepted, edited), want: "feeds/group-b"},
		"one that was edited since":    {cached: groups(elsewhere), live: groups(accepted), want: "feeds/group-a"},
		"one that isn't missing":       {cached: groups(accepted), live: groups(accepted, waiting)},
		"deleted since":                {cached: groups(accepted, edited), live: groups(accepted)},
		"no answer":                    {live: listing{err: away}, want: away.Error()},
		"no cache":                     {cached: listing{err: away}, want: away.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			err := seesInherited(t.Context(), tc.cached, tc.live)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("seesInherited: %v, want %q", err, tc.want)
			}
		})
	}
}
