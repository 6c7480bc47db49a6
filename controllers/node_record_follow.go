package controllers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// observation is what the watch of the node's own object has told last.
type observation struct {
	uid     types.UID
	version string
	deleted bool
}

// outdates reports whether the object as last read or written isn't the one
// that there is. Own writes are told too, some of them late.
func (o *observation) outdates(object *v1alpha1.MulticastNode) bool {
	if o == nil || object == nil {
		return false // it is read anyway
	}
	if o.deleted {
		return o.uid == object.UID
	}
	order, err := resourceversion.CompareResourceVersion(o.version, object.ResourceVersion)
	return err != nil || order > 0
}

// follow hears of the node's own object: whoever deletes it by hand while the
// node is a member would let groups go early, so it is written anew at once.
func (r *NodeRecord) follow() handler.TypedEventHandler[*metav1.PartialObjectMetadata, planning] {
	type queue = workqueue.TypedRateLimitingInterface[planning]
	return handler.TypedFuncs[*metav1.PartialObjectMetadata, planning]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*metav1.PartialObjectMetadata], _ queue) {
			r.observe(observation{uid: e.Object.UID, version: e.Object.ResourceVersion})
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*metav1.PartialObjectMetadata], _ queue) {
			r.observe(observation{uid: e.ObjectNew.UID, version: e.ObjectNew.ResourceVersion})
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*metav1.PartialObjectMetadata], _ queue) {
			r.observe(observation{uid: e.Object.UID, deleted: true})
		},
	}
}

func (r *NodeRecord) observe(o observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed = &o
	r.signal()
}

// nodeMade: the Node has been made, or made anew, and has another UID.
func (r *NodeRecord) nodeMade() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newNode = true
	r.signal()
}

// editInterval is the shortest time between two answers to edits of the object:
// whoever edits it all the time, another agent of the same node for instance,
// isn't answered as fast as the API server can.
const editInterval = time.Second

// outdated tells, once, that what is known of the API's objects isn't so any
// more, and when to read it anew: at once, but for edits that follow another.
// Of the writing goroutine alone.
func (r *NodeRecord) outdated() (at time.Time, outdated bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at = time.Now()
	outdated = r.newNode || r.observed.outdates(r.object)
	if outdated && !r.newNode && !r.observed.deleted {
		switch again := r.edited.Add(editInterval); {
		case at.Before(r.edited): // to be answered then
			at = r.edited
		case at.Before(again):
			at = again
		}
		r.edited = at
	}
	r.newNode, r.observed = false, nil
	return at, outdated
}
