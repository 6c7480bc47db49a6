package controllers

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// NodeCache is what an agent keeps of the cluster: all groups, and, selected by
// the server, the pods of its own node, its Node and its MulticastNode, without
// what no planning looks at.
func NodeCache(nodeName string) map[client.Object]cache.ByObject {
	own := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", nodeName), Transform: stripMetadata}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Field:     fields.OneTermEqualSelector("spec.nodeName", nodeName),
			Transform: stripPod,
		},
		ownNodeMetadata():          own,
		ownRecordMetadata():        own,
		&v1alpha1.MulticastGroup{}: {Transform: stripGroup},
	}
}

// stripPod keeps a pod's identity, annotations (all of them: their total is
// bounded by the API server, and the answer has to fit in beside them) and the
// one condition.
func stripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	stripped := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			Annotations:       pod.Annotations,
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if c := podCondition(pod, v1alpha1.ConditionGroupsJoined); c != nil {
		stripped.Status.Conditions = []corev1.PodCondition{*c}
	}
	return stripped, nil
}

func stripGroup(obj any) (any, error) {
	if group, ok := obj.(*v1alpha1.MulticastGroup); ok {
		group.ManagedFields, group.Annotations, group.Labels = nil, nil, nil
	}
	return obj, nil
}

// ownMetadata is an object of which only the metadata is watched: of the Node its
// labels, of the MulticastNode that it was changed or has gone.
func ownMetadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

func ownNodeMetadata() *metav1.PartialObjectMetadata {
	return ownMetadata(corev1.SchemeGroupVersion.WithKind("Node"))
}

func ownRecordMetadata() *metav1.PartialObjectMetadata {
	return ownMetadata(v1alpha1.GroupVersion.WithKind("MulticastNode"))
}

// stripMetadata keeps identity and labels.
func stripMetadata(obj any) (any, error) {
	if object, ok := obj.(*metav1.PartialObjectMetadata); ok {
		object.Annotations, object.ManagedFields = nil, nil
	}
	return obj, nil
}

// planOn has everything planned anew when an object comes, goes, or has changed
// in a way that matters.
func planOn[object client.Object](changed func(before, after object) bool) handler.TypedEventHandler[object, planning] {
	add := func(q workqueue.TypedRateLimitingInterface[planning]) { q.Add(planning{}) }
	return handler.TypedFuncs[object, planning]{
		CreateFunc: func(_ context.Context, _ event.TypedCreateEvent[object], q workqueue.TypedRateLimitingInterface[planning]) {
			add(q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[object], q workqueue.TypedRateLimitingInterface[planning]) {
			if changed(e.ObjectOld, e.ObjectNew) {
				add(q)
			}
		},
		DeleteFunc: func(_ context.Context, _ event.TypedDeleteEvent[object], q workqueue.TypedRateLimitingInterface[planning]) {
			add(q)
		},
	}
}

// groupChanged: sums in a group's status change all the time and are no reason
// to plan.
func groupChanged(before, after *v1alpha1.MulticastGroup) bool {
	a, b := planningGroup(before), planningGroup(after)
	return !equality.Semantic.DeepEqual(before.Spec, after.Spec) || before.UID != after.UID ||
		a.Accepted != b.Accepted || a.Deleting != b.Deleting || a.Generation != b.Generation
}

func podChanged(before, after *corev1.Pod) bool {
	return before.UID != after.UID ||
		before.Annotations[v1alpha1.GroupsAnnotation] != after.Annotations[v1alpha1.GroupsAnnotation] ||
		wasAnswered(before) != wasAnswered(after) || podEnding(before) != podEnding(after)
}

// nodeChanged: a Node's status changes all the time.
func nodeChanged(before, after *metav1.PartialObjectMetadata) bool {
	return before.UID != after.UID || !maps.Equal(before.Labels, after.Labels)
}

// podEnding: it is being deleted, or has completed.
func podEnding(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
