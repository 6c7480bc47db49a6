package controllers

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
)

// A deletion that waits is told once, and not before it has waited for long.
func TestTellHeldUp(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	r := &groupReconciler{recorder: recorder, told: map[types.UID]bool{}}
	g := deleting(groupOf("a", "239.1.1.7", 5, 2))
	entries := []nodeEntry{{node: "n1"}}
	for _, step := range []struct {
		after, again time.Duration
		told         int
	}{
		{0, heldUpAfter, 0},
		{10 * time.Second, heldUpAfter - 10*time.Second, 0},
		{heldUpAfter, 0, 1},
		{time.Hour, 0, 1},
	} {
		if again := r.tellHeldUp(&g, entries, g.DeletionTimestamp.Add(step.after)); again != step.again {
			t.Errorf("after %v: looked at again in %v, want %v", step.after, again, step.again)
		}
		if n := len(recorder.Events); n != step.told {
			t.Errorf("after %v: %d events, want %d", step.after, n, step.told)
		}
	}
	if e := <-recorder.Events; !strings.Contains(e, "Warning Leaving") || !strings.Contains(e, "waiting for 1 node to leave: n1") {
		t.Errorf("event %q", e)
	}
}
