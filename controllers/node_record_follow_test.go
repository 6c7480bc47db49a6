package controllers

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// Edits are answered at once, then once a second however many there are; a
// deletion always at once.
func TestEditsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewNodeRecord(nil, "n", "boot", 0, logr.Discard())
		r.object = &v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "1"}}
		want := func(o observation, wait time.Duration) {
			t.Helper()
			r.observe(o)
			if at, outdated := r.outdated(); !outdated || time.Until(at) != wait {
				t.Fatalf("outdated %t, in %v; want in %v", outdated, time.Until(at), wait)
			}
		}
		edit := func(i int) observation { return observation{uid: "uid", version: fmt.Sprint(i + 2)} }
		for i := range 50 {
			wait := -time.Duration(i) * 10 * time.Millisecond
			if i > 0 {
				wait += editInterval
			}
			want(edit(i), wait)
			time.Sleep(10 * time.Millisecond)
		}
		want(observation{uid: "uid", deleted: true}, 0)
		time.Sleep(3 * editInterval)
		want(edit(50), 0)
	})
}
