package localcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// CompletesAfterAnnotation lets a hollow pod's containers exit with success
	// after a duration ("3s"), as those of a Job do. Without it they run until
	// the pod is deleted.
	CompletesAfterAnnotation = "localcluster.rdma-multicast.dev/completes-after"
	// StopsAfterAnnotation is how long a hollow pod's containers take to stop
	// once the pod is deleted, at most its grace period. Default: 1s.
	StopsAfterAnnotation = "localcluster.rdma-multicast.dev/stops-after"

	defaultStopsAfter = time.Second
)

// hollowPods is kubelet for all hollow nodes, and the scheduler: it gives a
// pod's sandbox, network and status what kubelet would have, and binds pods
// without a node round robin. Containers it has none.
type hollowPods struct {
	client client.Client
	nodes  []*Node
	log    logr.Logger

	mu   sync.Mutex
	pods map[types.NamespacedName]*hollowPod
	next int // node to bind to
}

// hollowPod is a pod that has, or had, a sandbox.
type hollowPod struct {
	uid     types.UID
	node    *Node
	started time.Time
	sandbox *sandboxNetwork // guarded by hollowPods.mu; nil: it has stopped
}

func (h *hollowPods) setupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("hollow-kubelet").
		For(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, SkipNameValidation: ptr.To(true)}).
		Complete(h)
}

// Reconcile brings one pod forward.
func (h *hollowPods) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	err := h.client.Get(ctx, req.NamespacedName, &pod)
	if apierrors.IsNotFound(err) {
		// Deleted by force: the object goes first, then the sandbox.
		return reconcile.Result{}, h.stop(req.NamespacedName, h.known(req.NamespacedName))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	known := h.known(req.NamespacedName)
	if known != nil && known.uid != pod.UID {
		if err := h.stop(req.NamespacedName, known); err != nil {
			return reconcile.Result{}, err
		}
		known = nil
	}
	if pod.Spec.NodeName == "" {
		return reconcile.Result{}, h.bind(ctx, &pod)
	}
	node := h.node(pod.Spec.NodeName)
	switch {
	case node == nil:
		return reconcile.Result{}, nil
	case pod.DeletionTimestamp != nil:
		return h.end(ctx, &pod, known)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return reconcile.Result{}, nil
	case known == nil:
		if known, err = h.run(&pod, node); err != nil {
			return reconcile.Result{}, err
		}
	}
	return h.follow(ctx, &pod, known)
}

func (h *hollowPods) known(key types.NamespacedName) *hollowPod {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pods[key]
}

func (h *hollowPods) node(name string) *Node {
	for _, n := range h.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// bind gives a pod the next node that its nodeSelector allows. A pod that none
// fits stays Pending.
func (h *hollowPods) bind(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 {
		return nil
	}
	selector := labels.SelectorFromSet(pod.Spec.NodeSelector)
	h.mu.Lock()
	var node *Node
	for range h.nodes {
		candidate := h.nodes[h.next%len(h.nodes)]
		h.next++
		if selector.Matches(candidate.labels()) {
			node = candidate
			break
		}
	}
	h.mu.Unlock()
	if node == nil {
		return nil
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	err := h.client.SubResource("binding").Create(ctx, pod, binding)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // bound or gone meanwhile
	}
	return err
}

// run gives a pod its sandbox.
func (h *hollowPods) run(pod *corev1.Pod, node *Node) (*hollowPod, error) {
	sandbox, err := node.runSandbox(pod)
	if err != nil {
		return nil, fmt.Errorf("sandbox of pod %s/%s on %s: %w", pod.Namespace, pod.Name, node.Name, err)
	}
	known := &hollowPod{uid: pod.UID, node: node, sandbox: sandbox, started: time.Now()}
	h.mu.Lock()
	h.pods[client.ObjectKeyFromObject(pod)] = known
	h.mu.Unlock()
	h.log.Info("sandbox runs", "pod", client.ObjectKeyFromObject(pod), "node", node.Name, "sandbox", sandbox.id)
	return known, nil
}

// follow writes the status of a running pod, and completes it when it is due.
func (h *hollowPods) follow(ctx context.Context, pod *corev1.Pod, known *hollowPod) (reconcile.Result, error) {
	completesAfter, err := durationAnnotation(pod, CompletesAfterAnnotation, 0)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	left := time.Until(known.started.Add(completesAfter))
	before := pod.DeepCopy()
	var again reconcile.Result
	sandbox := h.sandbox(known)
	switch {
	case sandbox == nil, completesAfter > 0 && left <= 0:
		if err := h.stopSandbox(client.ObjectKeyFromObject(pod), known); err != nil {
			return reconcile.Result{}, err
		}
		setCompleted(pod)
	case completesAfter > 0:
		again.RequeueAfter = left
		fallthrough
	default:
		setRunning(pod, known, sandbox)
	}
	if equality.Semantic.DeepEqual(before.Status, pod.Status) {
		return again, nil
	}
	err = h.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before))
	return again, client.IgnoreNotFound(err)
}

// end stops a pod that is being deleted once its containers have had their
// time, and then takes its object away.
func (h *hollowPods) end(ctx context.Context, pod *corev1.Pod, known *hollowPod) (reconcile.Result, error) {
	if known != nil && h.sandbox(known) != nil {
		grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
		stopsAfter, err := durationAnnotation(pod, StopsAfterAnnotation, defaultStopsAfter)
		if err != nil {
			h.log.Error(err, "the default is taken", "pod", client.ObjectKeyFromObject(pod))
		}
		asked := pod.DeletionTimestamp.Add(-grace)
		if left := time.Until(asked.Add(min(stopsAfter, grace))); left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
	}
	if err := h.stop(client.ObjectKeyFromObject(pod), known); err != nil {
		return reconcile.Result{}, err
	}
	err := h.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// stop ends a pod's sandbox and forgets the pod.
func (h *hollowPods) stop(key types.NamespacedName, known *hollowPod) error {
	if known == nil {
		return nil
	}
	if err := h.stopSandbox(key, known); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pods, key)
	return nil
}

func (h *hollowPods) stopSandbox(key types.NamespacedName, known *hollowPod) error {
	sandbox := h.sandbox(known)
	if sandbox == nil {
		return nil
	}
	if err := known.node.stopSandbox(sandbox); err != nil {
		return fmt.Errorf("stop the sandbox of pod %s on %s: %w", key, known.node.Name, err)
	}
	h.log.Info("sandbox stopped", "pod", key, "node", known.node.Name, "sandbox", sandbox.id)
	h.mu.Lock()
	defer h.mu.Unlock()
	known.sandbox = nil
	return nil
}

// sandbox of a pod; nil: it has stopped.
func (h *hollowPods) sandbox(known *hollowPod) *sandboxNetwork {
	h.mu.Lock()
	defer h.mu.Unlock()
	return known.sandbox
}

// stopAll ends every sandbox, at the end of the cluster.
func (h *hollowPods) stopAll() error {
	h.mu.Lock()
	pods := make(map[types.NamespacedName]*hollowPod, len(h.pods))
	for key, known := range h.pods {
		pods[key] = known
	}
	h.mu.Unlock()
	var errs []error
	for key, known := range pods {
		errs = append(errs, h.stop(key, known))
	}
	return errors.Join(errs...)
}

// durationAnnotation is an annotation's duration, or the default.
func durationAnnotation(pod *corev1.Pod, name string, fallback time.Duration) (time.Duration, error) {
	text, ok := pod.Annotations[name]
	if !ok {
		return fallback, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fallback, fmt.Errorf("annotation %s of pod %s/%s is %q: want a duration such as 3s", name, pod.Namespace, pod.Name, text)
	}
	return d, nil
}
