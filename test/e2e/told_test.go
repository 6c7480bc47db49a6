//go:build realkernel

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ask edits the annotation of a running pod; "" takes it away.
func (c *cluster) ask(t *testing.T, pod, groups string) {
	t.Helper()
	var annotation any
	if groups != "" {
		annotation = groups
	}
	c.patch(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}},
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.GroupsAnnotation: annotation}}})
}

// patch merges a change into an object.
func (c *cluster) patch(t *testing.T, object client.Object, change map[string]any) {
	t.Helper()
	body, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.client.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, body)); err != nil {
		t.Fatalf("change %T %s: %v", object, object.GetName(), err)
	}
}

// told is what a pod is told of its groups, by name@interface.
type told map[string]v1alpha1.MembershipStatus

// states are the states that are told.
func (g told) states() map[string]v1alpha1.MembershipState {
	states := map[string]v1alpha1.MembershipState{}
	for name, status := range g {
		states[name] = status.State
	}
	return states
}

// isTold waits until a pod is told exactly these memberships (name@interface),
// in these states, and gives all that it is told of them. It fails when one of
// them is told twice.
func (c *cluster) isTold(t *testing.T, pod string, want map[string]v1alpha1.MembershipState) told {
	t.Helper()
	var got told
	c.eventually(t, fmt.Sprintf("pod %s to be told %v", pod, want), func() error {
		a, err := c.answer(pod)
		if err != nil {
			return err
		}
		got = told{}
		for _, status := range a.groups {
			name := status.Group[len(namespace)+1:] + "@" + status.Interface
			if _, twice := got[name]; twice {
				t.Fatalf("%s is told twice: %+v", name, a.groups)
			}
			got[name] = status
		}
		if !maps.Equal(want, got.states()) {
			return fmt.Errorf("it is told %+v, condition %+v", a.groups, a.condition)
		}
		return nil
	})
	return got
}

// areJoined waits until a pod is told that it has exactly these memberships
// (name@interface).
func (c *cluster) areJoined(t *testing.T, pod string, memberships ...string) told {
	t.Helper()
	want := map[string]v1alpha1.MembershipState{}
	for _, name := range memberships {
		want[name] = v1alpha1.StateJoined
	}
	return c.isTold(t, pod, want)
}

// untouched holds that memberships weren't joined again between two answers:
// all that is told of them is what it was, the epoch too.
func untouched(t *testing.T, before, after told, memberships ...string) {
	t.Helper()
	for _, name := range memberships {
		if diff := cmp.Diff(before[name], after[name]); diff != "" {
			t.Errorf("%s isn't what it was (-before +after):\n%s", name, diff)
		}
	}
}

// rejoined holds that memberships were joined again between two answers.
func rejoined(t *testing.T, before, after told, memberships ...string) {
	t.Helper()
	for _, name := range memberships {
		if before[name].Epoch < 1 || after[name].Epoch <= before[name].Epoch {
			t.Errorf("%s has epoch %d, before %d: applications wouldn't notice that it was joined again",
				name, after[name].Epoch, before[name].Epoch)
		}
	}
}

// toldGID holds that a membership is told with its device, and with the GID that
// stands for an address of the pod's, at the index where the device's table has
// it.
func toldGID(t *testing.T, status v1alpha1.MembershipStatus, device, address string) {
	t.Helper()
	want := netip.AddrFrom16(netip.MustParseAddr(address).As16())
	switch {
	case status.Device != device || status.Port != 1:
		t.Errorf("%s on %s is told to be on port %d of %s, want port 1 of %s",
			status.Group, status.Interface, status.Port, status.Device, device)
	case status.GIDIndex == nil:
		t.Errorf("no gidIndex is told: %+v", status)
	case status.GID != want.String():
		t.Errorf("%s on %s is told GID %s, want %s", status.Group, status.Interface, status.GID, want)
	default:
		if entry := gid(t, device, *status.GIDIndex); entry != want {
			t.Errorf("%s on %s is told gidIndex %d, which is GID %s, want %s",
				status.Group, status.Interface, *status.GIDIndex, entry, want)
		}
	}
}

// entry waits until the node's entry of a group counts so many memberships, all
// of them joined.
func (c *cluster) entry(t *testing.T, group string, members int32) {
	t.Helper()
	c.entryCounts(t, group, members, members)
}

// entryCounts waits until the node's entry of a group has these numbers; what
// is neither joined nor about to be counts as failing.
func (c *cluster) entryCounts(t *testing.T, group string, members, joined int32) {
	t.Helper()
	c.eventually(t, fmt.Sprintf("%d of %d memberships of %s in the MulticastNode", joined, members, group), func() error {
		node, err := c.nodeObject()
		if err != nil {
			return err
		}
		for _, entry := range node.Status.Groups {
			if entry.Namespace != namespace || entry.Name != group {
				continue
			}
			if entry.Members != members || entry.Joined != joined || entry.Failing != members-joined {
				return fmt.Errorf("the entry is %+v", entry)
			}
			return nil
		}
		if members == 0 {
			return nil
		}
		return errors.New("there is no entry")
	})
}

// inPod runs a command in the network namespace of a pod's process.
func inPod(t *testing.T, pid int, argv ...string) string {
	t.Helper()
	return run(t, append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid)}, argv...)...)
}
