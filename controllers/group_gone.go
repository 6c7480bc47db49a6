package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// goneNodeReconciler deletes the MulticastNode of a node that is gone for good,
// and its entries with it, so that groups aren't held by them. Gone for good: no
// Node of that name, and the Lease of its agent has expired. The Lease is the
// agent's own, since kubelet's goes with the Node object, which may be deleted
// under an agent that lives on.
type goneNodeReconciler struct {
	client    client.Client
	live      client.Reader
	namespace string // of the agents' Leases
	leases    *leaseObserver
	log       logr.Logger
}

// +kubebuilder:rbac:groups=rdma-multicast.dev,resources=multicastnodes,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get,namespace=rdma-multicast-system

func (r *goneNodeReconciler) setupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("multicastnode").
		For(&v1alpha1.MulticastNode{}).
		WatchesMetadata(nodeMetadata(), &handler.EnqueueRequestForObject{}).
		WithOptions(clusterControllerOptions(1)).
		Complete(r)
}

// Reconcile looks at the MulticastNode and the Node of one name.
func (r *goneNodeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var mcn v1alpha1.MulticastNode
	if err := r.client.Get(ctx, req.NamespacedName, &mcn); err != nil {
		r.leases.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// The cache may not have seen a new Node; the API server has.
	for _, reader := range []client.Reader{r.client, r.live} {
		err := reader.Get(ctx, req.NamespacedName, nodeMetadata())
		if err == nil {
			r.leases.forget(req.Name)
			return reconcile.Result{}, nil
		}
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
	}
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: r.namespace, Name: v1alpha1.LeaseNamePrefix + req.Name}
	if err := r.live.Get(ctx, key, lease); apierrors.IsNotFound(err) {
		lease = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Lease %s of the agent on %s: %w", key, req.Name, err)
	}
	if left, first := r.leases.observe(req.Name, lease, time.Now()); left > 0 {
		if first {
			r.log.Info("the Node is gone; its entries count until the agent's Lease expires", "node", req.Name, "lease", key, "expires", left)
		}
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err := r.client.Delete(ctx, &mcn, client.Preconditions{UID: &mcn.UID, ResourceVersion: &mcn.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		// Somebody wrote it: that change comes by the watch.
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("deleting the MulticastNode of %s, whose Node is gone: %w", req.Name, err)
	}
	r.leases.forget(req.Name)
	r.log.Info("the Node is gone and its agent's Lease has expired: MulticastNode deleted", "node", req.Name, "groups", len(mcn.Status.Groups))
	return reconcile.Result{}, nil
}

// leaseObserver tells whether Leases have expired without trusting the clocks
// of nodes, as leader election does: a Lease has expired when it was seen
// unchanged for as long as it lasts.
type leaseObserver struct {
	mu   sync.Mutex
	seen map[string]seenLease // by node
}

type seenLease struct {
	uid     types.UID // "": there was none
	version string
	since   time.Time
}

func newLeaseObserver() *leaseObserver { return &leaseObserver{seen: map[string]seenLease{}} }

// observe takes a node's Lease as it is now (nil: there is none) and returns how
// long it is to stay unchanged to count as expired, and whether this is the
// first look at this node.
func (o *leaseObserver) observe(node string, lease *coordinationv1.Lease, now time.Time) (left time.Duration, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	duration := DefaultLeaseDuration
	current := seenLease{since: now}
	if lease != nil {
		current.uid, current.version = lease.UID, lease.ResourceVersion
		if s := lease.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
			duration = time.Duration(*s) * time.Second
		}
	}
	before, known := o.seen[node]
	if known && before.uid == current.uid && before.version == current.version {
		return max(0, duration-now.Sub(before.since)), false
	}
	o.seen[node] = current
	return duration, !known
}

func (o *leaseObserver) forget(node string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, node)
}

// clusterControllerOptions are those of the cluster's controllers. Tests and
// the demo run several clusters in one process, so names needn't be unique.
func clusterControllerOptions(workers int) controller.Options {
	skip := true
	return controller.Options{MaxConcurrentReconciles: workers, SkipNameValidation: &skip}
}
