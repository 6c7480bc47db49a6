package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// DefaultLeaseDuration is how long after its last renewal an agent counts as
// alive.
const DefaultLeaseDuration = 40 * time.Second

// NodeLease renews the agent's own Lease. kubelet's goes away with the Node
// object; this one tells the controller that an agent still holds memberships
// on a node that the cluster has forgotten. It is not deleted at exit: the
// entries of a stopped agent stay, and with them the time that they are due.
type NodeLease struct {
	// Client reads and writes past any cache.
	Client client.Client
	// Namespace is the agent's own.
	Namespace string
	// NodeName ends the Lease's name, after v1alpha1.LeaseNamePrefix.
	NodeName string
	// Duration of the Lease, at least a second, whole seconds; it is renewed
	// at a third of it. Zero: DefaultLeaseDuration.
	Duration time.Duration
	Log      logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each node has
// its own.
func (l *NodeLease) NeedLeaderElection() bool { return false }

// Start renews the Lease until ctx ends. Errors are logged once per outage and
// tried again; they never end it.
func (l *NodeLease) Start(ctx context.Context) error {
	duration := l.Duration
	if duration == 0 {
		duration = DefaultLeaseDuration
	}
	interval := duration / 3
	var lease *coordinationv1.Lease
	failing := false
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, interval)
		defer cancel()
		renewed, err := l.renew(bounded, lease, duration)
		lease = renewed
		switch {
		case err != nil && !failing && ctx.Err() == nil:
			failing = true
			l.Log.Error(err, "the agent's lease can't be renewed", "lease", l.key())
		case err == nil && failing:
			failing = false
			l.Log.Info("the agent's lease is renewed again", "lease", l.key())
		}
	}, interval, 0.1, false)
	return nil
}

func (l *NodeLease) key() client.ObjectKey {
	return client.ObjectKey{Namespace: l.Namespace, Name: v1alpha1.LeaseNamePrefix + l.NodeName}
}

// renew writes the Lease on top of the one last written, reading it anew where
// that isn't known or somebody else has written. It returns nil where the next
// renewal has to read first.
func (l *NodeLease) renew(ctx context.Context, lease *coordinationv1.Lease, duration time.Duration) (*coordinationv1.Lease, error) {
	if lease == nil {
		lease = &coordinationv1.Lease{}
		err := l.Client.Get(ctx, l.key(), lease)
		if apierrors.IsNotFound(err) {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.key().Name}}
			l.fill(lease, duration)
			if err := l.Client.Create(ctx, lease); err != nil {
				return nil, fmt.Errorf("creating lease %s: %w", l.key(), err)
			}
			return lease, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading lease %s: %w", l.key(), err)
		}
	}
	l.fill(lease, duration)
	if err := l.Client.Update(ctx, lease); err != nil {
		return nil, fmt.Errorf("renewing lease %s: %w", l.key(), err)
	}
	return lease, nil
}

func (l *NodeLease) fill(lease *coordinationv1.Lease, duration time.Duration) {
	seconds := int32(duration / time.Second)
	now := metav1.NowMicro()
	lease.Spec.HolderIdentity = &l.NodeName
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &now
	if lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
}
