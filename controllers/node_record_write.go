package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// Start writes the object until ctx ends. What is still to be written then
// stays unwritten: an entry too many is safe, and the next process prunes it.
func (r *NodeRecord) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var notBefore time.Time
	reread := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
		if at, outdated := r.outdated(); outdated && at.Before(reread) {
			reread = at
		}
		r.mu.Lock()
		next := r.due
		r.mu.Unlock()
		if next.IsZero() || reread.Before(next) {
			next = reread
		}
		if next.Before(notBefore) {
			next = notBefore
		}
		if d := time.Until(next); d > 0 {
			timer.Reset(d)
			continue
		}
		if !time.Now().Before(reread) {
			r.object, r.nodeRead = nil, false
		}
		err := r.write(ctx)
		r.mu.Lock()
		r.lastErr = err
		r.mu.Unlock()
		if err != nil {
			notBefore = time.Now().Add(r.backoff(ctx, err))
		} else {
			notBefore = time.Time{}
			reread = time.Now().Add(wait.Jitter(rereadInterval, 0.2))
			if r.failures > 0 {
				r.log.Info("the node's object is written again", "multicastNode", r.name)
			}
			r.failures = 0
		}
		timer.Reset(0)
	}
}

// backoff tells those whom waiting doesn't help, and how long to wait.
func (r *NodeRecord) backoff(ctx context.Context, err error) time.Duration {
	if r.failures == 0 && ctx.Err() == nil {
		r.log.Error(err, "the node's object can't be written", "multicastNode", r.name)
	}
	r.failures++
	r.object = nil
	if !transient(err) {
		r.mu.Lock()
		for _, w := range r.waiters {
			w.done <- err
		}
		r.waiters = nil
		r.mu.Unlock()
	}
	delay := firstWriteDelay << min(r.failures-1, 10)
	return wait.Jitter(min(delay, longestWriteDelay), 0.2)
}

// transient: the API server is away or overloaded, and no answer of its own
// says that it won't be different in a second.
func transient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// write brings the object in line with what is known, once. Conflicts are
// tried again at once, on top of what is read then.
func (r *NodeRecord) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for {
		if err := r.read(ctx); err != nil {
			return err
		}
		object, revision, waited := r.desired()
		if waited || !equality.Semantic.DeepEqual(object.Status, r.object.Status) {
			err := r.client.Status().Update(ctx, object)
			if (apierrors.IsConflict(err) || apierrors.IsNotFound(err)) && ctx.Err() == nil {
				r.object = nil
				continue
			}
			if err != nil {
				return fmt.Errorf("writing MulticastNode %s: %w", r.name, err)
			}
			r.object = object
		}
		r.written(revision)
		return nil
	}
}

// desired is the object as it should be, of which revision, and whether
// somebody waits for it.
func (r *NodeRecord) desired() (*v1alpha1.MulticastNode, int64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object := r.object.DeepCopy()
	status := &object.Status
	status.NodeUID, status.BootID, status.Devices = r.nodeUID, r.bootID, r.devices
	status.Groups = make([]v1alpha1.NodeGroup, 0, len(r.entries))
	for _, e := range r.entries {
		status.Groups = append(status.Groups, e.NodeGroup)
	}
	sortNodeGroups(status.Groups)
	for _, t := range slices.Sorted(maps.Keys(r.conditions)) {
		meta.SetStatusCondition(&status.Conditions, r.conditions[t])
	}
	return object, r.revision, len(r.waiters) > 0
}

// written answers those that waited for this revision or an older one.
func (r *NodeRecord) written(revision int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	urgent := r.urgent > revision
	rest := r.waiters[:0]
	for _, w := range r.waiters {
		if w.revision > revision {
			rest = append(rest, w)
			continue
		}
		w.done <- nil
	}
	r.waiters = rest
	switch {
	case len(rest) > 0, urgent:
		r.due = time.Now()
	case r.revision > revision:
		r.due = time.Now().Add(wait.Jitter(r.gather, 0.2))
	default:
		r.due = time.Time{}
	}
}

// read makes sure that the object is known and there. The first time it takes
// over the entries that an earlier process left.
func (r *NodeRecord) read(ctx context.Context) error {
	if !r.nodeRead {
		var node corev1.Node
		err := r.client.Get(ctx, client.ObjectKey{Name: r.name}, &node)
		switch {
		case err == nil:
			r.nodeUID = node.UID
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading node %s: %w", r.name, err)
		}
		r.nodeRead = true
	}
	if r.object != nil {
		return nil
	}
	object := &v1alpha1.MulticastNode{}
	err := r.client.Get(ctx, client.ObjectKey{Name: r.name}, object)
	if apierrors.IsNotFound(err) {
		object = &v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
		if err := r.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating MulticastNode %s: %w", r.name, err)
		}
	} else if err != nil {
		return fmt.Errorf("reading MulticastNode %s: %w", r.name, err)
	}
	r.object = object
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return nil
	}
	r.loaded = true
	for _, g := range object.Status.Groups {
		if _, known := r.entries[g.UID]; !known {
			r.entries[g.UID] = &recordEntry{NodeGroup: g, inherited: true}
		}
	}
	return nil
}
