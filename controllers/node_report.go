package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

const (
	firstReportRetry   = 100 * time.Millisecond
	longestReportRetry = 5 * time.Second
	reportTimeout      = 10 * time.Second

	// progressDelay is how long a pod whose groups are being joined isn't told
	// so: as a rule there is one answer, that they are joined.
	progressDelay = 500 * time.Millisecond

	// DefaultEventDelay is how long a problem has to last before there is an
	// event about it.
	DefaultEventDelay = 2 * time.Second
)

// NodeReporter tells pods how their groups are: in one patch of pods/status
// for each pod whose answer has changed, and by events on transitions.
type NodeReporter struct {
	client   client.Client
	pods     client.Reader
	recorder events.EventRecorder
	log      logr.Logger
	delay    time.Duration

	trigger *trigger[reconcile.Request]

	mu      sync.Mutex
	answers map[types.NamespacedName]podAnswer

	// Of the reconciling goroutine alone.
	told     map[types.NamespacedName]*toldPod
	progress map[types.NamespacedName]time.Time // since when the answer is in progress
}

// NewNodeReporter reads pods from the manager's cache. An event delay of zero
// is DefaultEventDelay.
func NewNodeReporter(c client.Client, pods client.Reader, recorder events.EventRecorder, eventDelay time.Duration, log logr.Logger) *NodeReporter {
	if eventDelay == 0 {
		eventDelay = DefaultEventDelay
	}
	return &NodeReporter{
		client:   c,
		pods:     pods,
		recorder: recorder,
		log:      log,
		delay:    eventDelay,
		trigger:  newTrigger[reconcile.Request](),
		answers:  map[types.NamespacedName]podAnswer{},
		told:     map[types.NamespacedName]*toldPod{},
		progress: map[types.NamespacedName]time.Time{},
	}
}

// SetupWithManager adds the controller that writes the answers.
func (r *NodeReporter) SetupWithManager(mgr ctrl.Manager) error {
	options := nodeControllerOptions[reconcile.Request](r)
	options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstReportRetry, longestReportRetry)
	options.ReconciliationTimeout = reportTimeout
	c, err := controller.NewTyped("pod-report", mgr, options)
	if err != nil {
		return fmt.Errorf("adding the pod report: %w", err)
	}
	if err := c.Watch(r.trigger); err != nil {
		return fmt.Errorf("adding the pod report: %w", err)
	}
	// A pod that comes, or whose answer somebody else has changed.
	pods := source.Kind(mgr.GetCache(), &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{})
	if err := c.Watch(pods); err != nil {
		return fmt.Errorf("adding the pod report: %w", err)
	}
	return nil
}

// set replaces all answers and has those written that have changed.
func (r *NodeReporter) set(answers map[types.NamespacedName]podAnswer) {
	r.mu.Lock()
	before := r.answers
	r.answers = answers
	r.mu.Unlock()
	for key, a := range answers {
		if b, ok := before[key]; !ok || !reflect.DeepEqual(a, b) {
			r.trigger.Add(reconcile.Request{NamespacedName: key})
		}
	}
	for key := range before {
		if _, ok := answers[key]; !ok {
			r.trigger.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// Reconcile writes one pod's answer where it differs from what the pod has.
func (r *NodeReporter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	a, ok := r.answers[req.NamespacedName]
	r.mu.Unlock()
	if !ok {
		delete(r.told, req.NamespacedName)
		delete(r.progress, req.NamespacedName)
		return reconcile.Result{}, nil
	}
	var pod corev1.Pod
	if err := r.pods.Get(ctx, req.NamespacedName, &pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.UID != a.uid {
		return reconcile.Result{}, nil
	}
	if left := r.hold(req.NamespacedName, a); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	value, shown, err := statusAnnotation(a.statuses, pod.Annotations)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	condition := a.condition
	if shown < len(a.statuses) {
		note := fmt.Sprintf("; %s has room for %d of %d", v1alpha1.GroupStatusAnnotation, shown, len(a.statuses))
		condition.Message = truncate(condition.Message, maxConditionMessage-len(note)) + note
	}
	before := podCondition(&pod, v1alpha1.ConditionGroupsJoined)
	same := before != nil && before.Status == condition.Status && before.Reason == condition.Reason && before.Message == condition.Message
	if !same || pod.Annotations[v1alpha1.GroupStatusAnnotation] != value {
		if err := r.patch(ctx, &pod, before, condition, value); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: r.tell(&pod, a, same)}, nil
}

// hold is how long an answer that says no more than that groups are being
// joined has to wait.
func (r *NodeReporter) hold(key types.NamespacedName, a podAnswer) time.Duration {
	if a.condition.Reason != v1alpha1.ReasonJoining && a.condition.Reason != v1alpha1.ReasonWaiting {
		delete(r.progress, key)
		return 0
	}
	since, ok := r.progress[key]
	if !ok {
		since = time.Now()
		r.progress[key] = since
	}
	return time.Until(since.Add(progressDelay))
}

// patch writes an answer. The UID guards against a pod of the same name that
// came after; there is no resourceVersion, since kubelet writes the same object
// and nothing of its own is touched.
func (r *NodeReporter) patch(ctx context.Context, pod *corev1.Pod, before *corev1.PodCondition, condition corev1.PodCondition, value string) error {
	transition := metav1.Now()
	if before != nil && before.Status == condition.Status && !before.LastTransitionTime.IsZero() {
		transition = before.LastTransitionTime
	}
	annotation := &value
	if value == "" {
		annotation = nil // taken away
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid":         pod.UID,
			"annotations": map[string]*string{v1alpha1.GroupStatusAnnotation: annotation},
		},
		"status": map[string]any{
			"conditions": []map[string]any{{
				"type":               condition.Type,
				"status":             condition.Status,
				"reason":             condition.Reason,
				"message":            condition.Message,
				"lastTransitionTime": transition,
			}},
		},
	})
	if err != nil {
		return reconcile.TerminalError(fmt.Errorf("encoding the answer to pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, body))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// Gone, or another pod of that name: the cache will say so.
		return nil
	}
	if err != nil {
		return fmt.Errorf("answering pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if before == nil || before.Status != condition.Status || before.Reason != condition.Reason {
		r.log.Info("pod answered", "pod", pod.Namespace+"/"+pod.Name, "joined", condition.Status, "reason", condition.Reason, "message", condition.Message)
	}
	return nil
}

func podCondition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
