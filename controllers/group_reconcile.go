package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

const (
	// heldUpAfter is how long a deletion may wait for nodes before an event
	// tells so.
	heldUpAfter = 30 * time.Second
	// clearanceRetry: an entry that only the API server shows yet; its going
	// comes by the watch, unless the cache hasn't even seen it come.
	clearanceRetry = time.Second
	// conflictRetries on what is read anew each time.
	conflictRetries = 8
	// groupWorkers is how many groups are looked at side by side.
	groupWorkers = 4
)

// groupReconciler accepts groups, has their sums written, and lets them go.
// What is decided is decided in group_acceptance.go and group_sums.go.
type groupReconciler struct {
	client   client.Client
	live     client.Reader // past the cache
	recorder events.EventRecorder
	sums     *sumQueue
	cleared  *clearance
	log      logr.Logger

	judging  sync.Mutex // held from a look at a group's rivals to the write of its acceptance
	caughtUp bool       // the cache has what an earlier controller put in force; under judging

	mu   sync.Mutex
	told map[types.UID]bool // deletions whose being held up was told
}

// +kubebuilder:rbac:groups=rdma-multicast.dev,resources=multicastgroups,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=rdma-multicast.dev,resources=multicastgroups/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;update,namespace=rdma-multicast-system

func (r *groupReconciler) setupWithManager(mgr ctrl.Manager) error {
	r.told = map[types.UID]bool{}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return nil
		}
		r.sums.run(ctx, r.writeSums)
		return nil
	})); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("multicastgroup").
		For(&v1alpha1.MulticastGroup{}).
		Watches(&v1alpha1.MulticastGroup{}, rivalRequests(mgr.GetClient())).
		Watches(&v1alpha1.MulticastNode{}, entryRequests()).
		WithOptions(clusterControllerOptions(groupWorkers)).
		Complete(r)
}

// Reconcile brings one group forward.
func (r *groupReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var result reconcile.Result
	err := r.onCurrent(ctx, req.NamespacedName, func(g *v1alpha1.MulticastGroup) (err error) {
		if !g.DeletionTimestamp.IsZero() {
			result, err = r.release(ctx, g)
			return err
		}
		if controllerutil.AddFinalizer(g, v1alpha1.GroupFinalizer) {
			if err := r.client.Update(ctx, g); err != nil {
				return fmt.Errorf("putting the finalizer on: %w", err)
			}
		}
		_, err = r.settle(ctx, g, false)
		return err
	})
	return result, err
}

// onCurrent calls change with the group as the cache has it, and after a
// conflict at once with the group as the API server has it. A group that is
// gone is none to change.
func (r *groupReconciler) onCurrent(ctx context.Context, name types.NamespacedName, change func(*v1alpha1.MulticastGroup) error) error {
	var reader client.Reader = r.client
	for attempt := 0; ; attempt++ {
		var g v1alpha1.MulticastGroup
		if err := reader.Get(ctx, name, &g); err != nil {
			return client.IgnoreNotFound(err)
		}
		err := change(&g)
		if attempt == conflictRetries || !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
		reader = r.live
	}
}

// settle writes the group's status if it differs: at once if acceptance does;
// if only sums do, when that is budgeted, and has it queued for that otherwise.
func (r *groupReconciler) settle(ctx context.Context, g *v1alpha1.MulticastGroup, budgeted bool) (wrote bool, err error) {
	rivals, err := r.rivals(ctx, g)
	if err != nil {
		return false, err
	}
	after, err := r.status(ctx, g, rivals)
	if err != nil {
		return false, err
	}
	switch before := g.Status; {
	case conditionChanged(before, after, v1alpha1.ConditionAccepted):
		return r.judge(ctx, g)
	case equality.Semantic.DeepEqual(before, after):
		return false, nil
	case !budgeted:
		r.sums.add(client.ObjectKeyFromObject(g), conditionDiffers(before.Conditions, after.Conditions, v1alpha1.ConditionReady))
		return false, nil
	}
	return true, r.write(ctx, g, after)
}

// judge decides whether the group is in force, and writes it, one group at a
// time. Nobody else puts groups in force, so that what the API server says of
// the rivals that the cache knows stays true until the decision is written, and
// one that the cache doesn't know yet isn't in force: of groups with the same
// address there is never a second one that is accepted, not for a moment.
func (r *groupReconciler) judge(ctx context.Context, g *v1alpha1.MulticastGroup) (wrote bool, err error) {
	r.judging.Lock()
	defer r.judging.Unlock()
	if !r.caughtUp {
		if err := seesInherited(ctx, r.client, r.live); err != nil {
			return false, err
		}
		r.caughtUp = true
	}
	rivals, err := r.rivals(ctx, g)
	if err != nil {
		return false, err
	}
	current := rivals[:0]
	for i := range rivals {
		var rival v1alpha1.MulticastGroup
		err := r.live.Get(ctx, client.ObjectKeyFromObject(&rivals[i]), &rival)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading a group that may have the same address: %w", err)
		}
		current = append(current, rival)
	}
	after, err := r.status(ctx, g, current)
	if err != nil || equality.Semantic.DeepEqual(g.Status, after) {
		return false, err
	}
	return true, r.write(ctx, g, after)
}

// rivals of a group that may be accepted, from the cache.
func (r *groupReconciler) rivals(ctx context.Context, g *v1alpha1.MulticastGroup) ([]v1alpha1.MulticastGroup, error) {
	if !g.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return rivalsOf(ctx, r.client, g)
}

// status is what the group's status should be, given its rivals.
func (r *groupReconciler) status(ctx context.Context, g *v1alpha1.MulticastGroup, rivals []v1alpha1.MulticastGroup) (v1alpha1.MulticastGroupStatus, error) {
	neighbours, err := neighboursOf(ctx, r.client, g)
	if err != nil {
		return v1alpha1.MulticastGroupStatus{}, err
	}
	entries, err := r.entries(ctx, g)
	if err != nil {
		return v1alpha1.MulticastGroupStatus{}, err
	}
	return statusOf(g, holderOfAddress(g, rivals), sharers(g, neighbours), entries), nil
}

func (r *groupReconciler) write(ctx context.Context, g *v1alpha1.MulticastGroup, status v1alpha1.MulticastGroupStatus) error {
	before := g.Status
	g.Status = status
	if err := r.client.Status().Update(ctx, g); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.tell(g, before, status)
	return nil
}

// tell logs transitions, and has events for those of acceptance and for a
// shared Ethernet address.
func (r *groupReconciler) tell(g *v1alpha1.MulticastGroup, before, after v1alpha1.MulticastGroupStatus) {
	for _, conditionType := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionEthernetAddressUnique, v1alpha1.ConditionReady} {
		is := meta.FindStatusCondition(after.Conditions, conditionType)
		was := meta.FindStatusCondition(before.Conditions, conditionType)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		r.log.Info("condition", "group", client.ObjectKeyFromObject(g), "uid", g.UID, "type", is.Type, "status", is.Status, "reason", is.Reason, "message", is.Message)
		eventType := corev1.EventTypeNormal
		if is.Status != metav1.ConditionTrue {
			eventType = corev1.EventTypeWarning
		}
		if conditionType == v1alpha1.ConditionAccepted || is.Reason == v1alpha1.ReasonEthernetAddressShared {
			r.recorder.Eventf(g, nil, eventType, is.Reason, "Accept", "%s: %s", groupAddress(&g.Spec), is.Message)
		}
	}
}

// writeSums is settle for the queue of sums.
func (r *groupReconciler) writeSums(ctx context.Context, name types.NamespacedName) (wrote bool) {
	err := r.onCurrent(ctx, name, func(g *v1alpha1.MulticastGroup) (err error) {
		wrote, err = r.settle(ctx, g, true)
		return err
	})
	if err != nil && ctx.Err() == nil {
		r.log.Error(err, "sums can't be written and are tried again", "group", name)
		r.sums.add(name, false)
		return true // an attempt is paid for, too
	}
	return wrote
}

// entries of the group, from the cache.
func (r *groupReconciler) entries(ctx context.Context, g *v1alpha1.MulticastGroup) ([]nodeEntry, error) {
	var nodes v1alpha1.MulticastNodeList
	if err := r.client.List(ctx, &nodes, client.MatchingFields{entryIndex: string(g.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	entries := entriesOf(g, nodes.Items)
	if g.DeletionTimestamp.IsZero() {
		return entries, nil
	}
	for i := range entries {
		err := r.client.Get(ctx, types.NamespacedName{Name: entries[i].node}, nodeMetadata())
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		entries[i].nodeGone = err != nil
	}
	return entries, nil
}

// release lets a group that is being deleted go once every node has left it.
func (r *groupReconciler) release(ctx context.Context, g *v1alpha1.MulticastGroup) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(g, v1alpha1.GroupFinalizer) {
		return reconcile.Result{}, nil
	}
	if awaitsLeaving {
		entries, err := r.entries(ctx, g)
		if err != nil {
			return reconcile.Result{}, err
		}
		if len(entries) > 0 {
			if _, err := r.settle(ctx, g, false); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{RequeueAfter: r.tellHeldUp(g, entries, time.Now())}, nil
		}
		cleared, err := r.cleared.of(ctx, g.UID)
		if err != nil {
			return reconcile.Result{}, err
		}
		if !cleared {
			return reconcile.Result{RequeueAfter: clearanceRetry}, nil
		}
	}
	controllerutil.RemoveFinalizer(g, v1alpha1.GroupFinalizer)
	if err := r.client.Update(ctx, g); err != nil {
		return reconcile.Result{}, fmt.Errorf("taking the finalizer away: %w", err)
	}
	r.mu.Lock()
	delete(r.told, g.UID)
	r.mu.Unlock()
	r.log.Info("no node is a member: let go", "group", client.ObjectKeyFromObject(g), "uid", g.UID)
	return reconcile.Result{}, nil
}

// tellHeldUp has one event on a group whose deletion waits for long, and returns
// when to look again for it.
func (r *groupReconciler) tellHeldUp(g *v1alpha1.MulticastGroup, entries []nodeEntry, now time.Time) time.Duration {
	if left := heldUpAfter - now.Sub(g.DeletionTimestamp.Time); left > 0 {
		return left
	}
	r.mu.Lock()
	told := r.told[g.UID]
	r.told[g.UID] = true
	r.mu.Unlock()
	if !told {
		r.recorder.Eventf(g, nil, corev1.EventTypeWarning, v1alpha1.ReasonLeaving, "Delete", "%s", leavingMessage(entries))
	}
	return 0
}
