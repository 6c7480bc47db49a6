package controllers

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// Defaults of ClusterOptions.
const (
	DefaultWritesPerSecond = 2
	DefaultWriteBurst      = 10
)

// leaderElectionID names the Lease that the replicas of the controller elect
// their leader by.
const leaderElectionID = "rdma-multicast-controller"

// eventSource is the reporting controller of the events on groups.
const eventSource = v1alpha1.Domain + "/controller"

// ClusterOptions say how the cluster's side is run.
type ClusterOptions struct {
	// AgentNamespace is where the agents keep their Leases. Required.
	AgentNamespace string
	// WritesPerSecond and WriteBurst are the budget for status writes that only
	// tell sums, for the whole cluster: each wakes every agent. Zero: the
	// defaults. Acceptance isn't under it.
	WritesPerSecond float64
	WriteBurst      int
	// HealthAddr and MetricsAddr to serve on, such as ":8081"; "" or "0": off.
	// Metrics are plain HTTP.
	HealthAddr, MetricsAddr string
	// LeaderElection is needed with more than one replica.
	LeaderElection bool
	// LeaderElectionNamespace of the Lease; "": that of the pod.
	LeaderElectionNamespace string
	Log                     logr.Logger
}

// NewClusterManager sets up the cluster's side: groups are accepted or refused,
// their nodes summed up, and a group that is deleted is let go once every node
// has left it. Start runs it.
func NewClusterManager(config *rest.Config, opts ClusterOptions) (ctrl.Manager, error) {
	if opts.AgentNamespace == "" {
		return nil, errors.New("no namespace is given to look for the agents' Leases in")
	}
	if opts.WritesPerSecond < 0 || opts.WriteBurst < 0 {
		return nil, fmt.Errorf("the write budget is %g a second with a burst of %d: it can't be negative", opts.WritesPerSecond, opts.WriteBurst)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	if config.QPS == 0 {
		// A limit here would hold up acceptance; the API server's priority and
		// fairness is the limit.
		config = rest.CopyConfig(config)
		config.QPS = -1
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Logger: opts.Log,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.MulticastNode{}: {Transform: stripMulticastNode},
				nodeMetadata():            {Transform: stripNode},
			},
		},
		LeaderElection:                opts.LeaderElection,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       opts.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        cmp.Or(opts.HealthAddr, "0"),
		Metrics:                       metricsserver.Options{BindAddress: cmp.Or(opts.MetricsAddr, "0")},
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, err
	}
	if err := indexFields(mgr); err != nil {
		return nil, err
	}
	groups := &groupReconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder(eventSource),
		sums:     newSumQueue(cmp.Or(opts.WritesPerSecond, DefaultWritesPerSecond), cmp.Or(opts.WriteBurst, DefaultWriteBurst)),
		cleared:  newClearance(mgr.GetClient(), mgr.GetAPIReader()),
		log:      opts.Log.WithName("group"),
	}
	gone := &goneNodeReconciler{
		client:    mgr.GetClient(),
		live:      mgr.GetAPIReader(),
		namespace: opts.AgentNamespace,
		leases:    newLeaseObserver(),
		log:       opts.Log.WithName("node"),
	}
	if err := errors.Join(groups.setupWithManager(mgr), gone.setupWithManager(mgr)); err != nil {
		return nil, err
	}
	return mgr, nil
}

// nodeMetadata is a Node of which only the metadata is read and watched.
func nodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// stripNode leaves of a Node what is asked of it: that it is there.
func stripNode(obj any) (any, error) {
	if node, ok := obj.(*metav1.PartialObjectMetadata); ok {
		node.Annotations, node.Labels, node.ManagedFields = nil, nil, nil
	}
	return obj, nil
}

// stripMulticastNode leaves of a MulticastNode its entries.
func stripMulticastNode(obj any) (any, error) {
	if node, ok := obj.(*v1alpha1.MulticastNode); ok {
		node.ManagedFields, node.Status.Devices, node.Status.Conditions = nil, nil, nil
	}
	return obj, nil
}
