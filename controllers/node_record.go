package controllers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// Intervals of a NodeRecord.
const (
	// DefaultGatherInterval is how long changes that nobody waits for are
	// gathered into one write of the MulticastNode.
	DefaultGatherInterval = 10 * time.Second

	// rereadInterval is how often the object is read without a reason: that
	// somebody deletes it or edits it by hand is told by a watch.
	rereadInterval = 10 * time.Minute
	// writeTimeout of one attempt to write.
	writeTimeout = 10 * time.Second
	// firstWriteDelay and longestWriteDelay bound the backoff of writes.
	firstWriteDelay   = 200 * time.Millisecond
	longestWriteDelay = 5 * time.Second
)

// NodeRecord keeps the MulticastNode of the agent's own node, which it alone
// writes: the entry of each group that this node is, or may be, a member of,
// the RDMA devices, and whether rdma_cm can be used.
//
// Whoever begins or ends a group waits for a write that includes it; all that
// wait at the same moment share one. Everything else is gathered.
type NodeRecord struct {
	client client.Client // past any cache
	name   string
	bootID string
	gather time.Duration
	log    logr.Logger

	mu         sync.Mutex
	entries    map[types.UID]*recordEntry
	devices    []v1alpha1.NodeDevice
	conditions map[string]metav1.Condition // by type
	revision   int64                       // of all the above; raised with each change
	urgent     int64                       // the last revision that isn't to be gathered
	waiters    []recordWaiter
	due        time.Time // of the next write; zero: none
	loaded     bool      // what an earlier process left has been read
	lastErr    error     // of the last write
	observed   *observation
	newNode    bool // the Node has been made, or made anew

	wake chan struct{}

	// Of the writing goroutine alone.
	object   *v1alpha1.MulticastNode // as last read or written; nil: not known
	nodeUID  types.UID
	nodeRead bool // nodeUID is from after the last reread
	failures int
	edited   time.Time // when an edit was, or is to be, answered last
}

// recordEntry is one entry and why it is there: neither begun nor inherited is
// one that only tells why nothing can be joined.
type recordEntry struct {
	v1alpha1.NodeGroup
	begun     bool // by this process
	inherited bool // from an earlier process, whose memberships ended with it
}

type recordWaiter struct {
	revision int64
	done     chan error
}

// NewNodeRecord keeps the MulticastNode called name. The client must not read
// from a cache. A gather interval of zero is DefaultGatherInterval.
func NewNodeRecord(c client.Client, name, bootID string, gather time.Duration, log logr.Logger) *NodeRecord {
	if gather == 0 {
		gather = DefaultGatherInterval
	}
	return &NodeRecord{
		client:     c,
		name:       name,
		bootID:     bootID,
		gather:     gather,
		log:        log,
		entries:    map[types.UID]*recordEntry{},
		conditions: map[string]metav1.Condition{},
		due:        time.Now(),
		wake:       make(chan struct{}, 1),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each node
// writes its own object.
func (r *NodeRecord) NeedLeaderElection() bool { return false }

// SetDevices sets the RDMA ports of the node.
func (r *NodeRecord) SetDevices(devices []v1alpha1.NodeDevice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if equality.Semantic.DeepEqual(r.devices, devices) {
		return
	}
	r.devices = devices
	r.changed(r.gather)
}

// SetCondition sets a condition of the node. Its transition time is kept where
// the status stays the same.
func (r *NodeRecord) SetCondition(condition metav1.Condition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.conditions[condition.Type]; ok && before.Status == condition.Status && before.Reason == condition.Reason && before.Message == condition.Message {
		return
	}
	r.log.Info("RDMA on this node", "condition", condition.Type, "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
	r.conditions[condition.Type] = condition
	r.changed(r.gather)
}

// SetGroups sets the numbers of the groups that this node takes part in, by
// UID. The entry before a join is Begin's; here one is made for a group that is
// wanted on this node and can't be joined, or has to wait, so that the group's
// own status tells so. With prune, entries of an earlier process that groups
// doesn't name are taken away; ask for it once all that could want one is known.
func (r *NodeRecord) SetGroups(groups map[types.UID]v1alpha1.NodeGroup, prune bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for uid, e := range r.entries {
		numbers, wanted := groups[uid]
		switch {
		case !wanted && e.inherited && prune:
			delete(r.entries, uid)
			changed = true
			r.log.Info("entry of an earlier process taken away", "group", e.Namespace+"/"+e.Name, "uid", uid)
			continue
		case !wanted && !e.begun && !e.inherited:
			delete(r.entries, uid) // only told why not; a deletion may wait for it
			r.changed(0)
			continue
		case !wanted:
			// Being left: nothing is wanted any more, but it counts until End.
			numbers = e.NodeGroup
			numbers.Members, numbers.Joined, numbers.Failing, numbers.Message = 0, 0, 0, ""
		}
		if e.NodeGroup != numbers {
			e.NodeGroup = numbers
			changed = true
		}
	}
	for uid, numbers := range groups {
		if r.entries[uid] == nil && numbers.Members > 0 && len(r.entries) < maxNodeGroups {
			r.entries[uid] = &recordEntry{NodeGroup: numbers}
			changed = true
		}
	}
	if changed {
		r.changed(r.gather)
	}
}

// changed notes that something has to be written, at the latest after about
// delay. Called with the lock held.
func (r *NodeRecord) changed(delay time.Duration) {
	r.revision++
	if delay > 0 {
		delay = wait.Jitter(delay, 0.2)
	} else {
		r.urgent = r.revision
	}
	if due := time.Now().Add(delay); r.due.IsZero() || due.Before(r.due) {
		r.due = due
		r.signal()
	}
}

func (r *NodeRecord) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// await has what has changed so far written at once and waits for it. Called
// without the lock.
func (r *NodeRecord) await(ctx context.Context, change func() error) error {
	r.mu.Lock()
	if err := change(); err != nil {
		r.mu.Unlock()
		return err
	}
	r.changed(0)
	w := recordWaiter{revision: r.revision, done: make(chan error, 1)}
	r.waiters = append(r.waiters, w)
	r.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range r.waiters {
			if r.waiters[i].done == w.done {
				r.waiters = append(r.waiters[:i], r.waiters[i+1:]...)
				break
			}
		}
		return fmt.Errorf("MulticastNode %s isn't written yet: %w", r.name, cmp.Or(r.lastErr, ctx.Err()))
	}
}
