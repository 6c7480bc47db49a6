package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/internal/sandbox"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// NodePlannerOptions are a NodePlanner's parts and settings.
type NodePlannerOptions struct {
	Host *rdma.Host
	// NodeName is the name of the agent's Node.
	NodeName string
	// NodeNetNS is the path of the node's own network namespace, "" for that of
	// this process.
	NodeNetNS string
	// NodeInterfacesOnly: pods' own network namespaces aren't looked into; all
	// pods use the node's interfaces.
	NodeInterfacesOnly bool
	// Simulated is said in the MulticastNode.
	Simulated bool
	Limits    membership.Limits

	Table     *membership.Table
	Sandboxes func() (live []sandbox.Sandbox, synced bool)
	Record    *NodeRecord
	Reporter  *NodeReporter
	Metrics   *NodeMetrics
	// SelfTest is run beside; nil: nothing is tried out.
	SelfTest *NodeSelfTest
	Log      logr.Logger
}

// NodePlanner plans the node's memberships whenever anything that they depend
// on has changed: groups, pods, sandboxes, interfaces, or the memberships
// themselves. Each planning looks at everything anew; many changes at once make
// one.
type NodePlanner struct {
	NodePlannerOptions
	groups, pods, nodes client.Reader // caches
	trigger             *trigger[planning]
	interfaces          scopeInterfaces
	accepted            acceptedGroups
	annotations         map[string]string // by sandbox ID: the last that the API's pod had
	labels              map[string]string // the last that the Node had
	nodeUID             types.UID
	planned             atomic.Bool
	problems            []*rdma.Problem // as of the last probe
	probedFor           probedInventory
	ending              atomic.Pointer[map[string]bool] // by the sandbox's pod UID
}

// planning is the one request of the planner's queue.
type planning struct{}

// NewNodePlanner makes the planner; its Table and Sandboxes may be set until
// SetupWithManager.
func NewNodePlanner(options NodePlannerOptions) *NodePlanner {
	p := &NodePlanner{
		NodePlannerOptions: options,
		trigger:            newTrigger[planning](),
		interfaces:         scopeInterfaces{host: options.Host, nodeNetNS: options.NodeNetNS},
		annotations:        map[string]string{},
	}
	if p.SelfTest != nil {
		p.SelfTest.init(p.Trigger)
	}
	p.interfaces.watch = newInventoryWatch(options.Host, options.NodeNetNS, p.Trigger, options.Log)
	return p
}

// Stopping is for the runtime's hook before a pod's network is torn down:
// nothing may keep its namespace alive.
func (p *NodePlanner) Stopping(sandboxID string) { p.interfaces.watch.closeScope(sandboxID) }

// Close frees what planning holds; after the manager has ended.
func (p *NodePlanner) Close() { p.interfaces.watch.closeAll() }

// Trigger has the memberships planned anew, soon. It never blocks.
func (p *NodePlanner) Trigger() { p.trigger.Add(planning{}) }

// Planned says whether memberships have been planned with everything known:
// groups, pods, and the runtime's sandboxes.
func (p *NodePlanner) Planned() bool { return p.planned.Load() }

// Ending says whether a pod is being deleted or has completed, as far as was
// known at the last planning. It is for the runtime's hooks, hence never waits.
func (p *NodePlanner) Ending(_, _, uid string) bool {
	ending := p.ending.Load()
	return ending != nil && (*ending)[uid]
}

// SetupWithManager adds the controller that plans.
func (p *NodePlanner) SetupWithManager(mgr ctrl.Manager) error {
	p.groups, p.pods, p.nodes = mgr.GetCache(), mgr.GetCache(), mgr.GetCache()
	c, err := controller.NewTyped("node-plan", mgr, nodeControllerOptions[planning](p))
	if err != nil {
		return fmt.Errorf("adding the planner: %w", err)
	}
	for _, s := range []source.TypedSource[planning]{
		p.trigger,
		source.TypedKind(mgr.GetCache(), &v1alpha1.MulticastGroup{}, planOn[*v1alpha1.MulticastGroup](groupChanged)),
		source.TypedKind(mgr.GetCache(), &corev1.Pod{}, planOn[*corev1.Pod](podChanged)),
		source.TypedKind(mgr.GetCache(), ownNodeMetadata(), planOn[*metav1.PartialObjectMetadata](nodeChanged)),
		source.TypedKind(mgr.GetCache(), ownRecordMetadata(), p.Record.follow()),
	} {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("adding the planner: %w", err)
		}
	}
	if p.SelfTest != nil {
		if err := mgr.Add(p.SelfTest); err != nil {
			return fmt.Errorf("adding the self-test: %w", err)
		}
	}
	return nil
}

// Reconcile plans once.
func (p *NodePlanner) Reconcile(ctx context.Context, _ planning) (reconcile.Result, error) {
	start := time.Now()
	var groups v1alpha1.MulticastGroupList
	if err := p.groups.List(ctx, &groups); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing groups: %w", err)
	}
	var apiPods corev1.PodList
	if err := p.pods.List(ctx, &apiPods); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing pods: %w", err)
	}
	node, err := p.node(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	ending := map[string]bool{}
	for i := range apiPods.Items {
		if pod := &apiPods.Items[i]; podEnding(pod) {
			ending[string(pod.UID)] = true
			if hash := pod.Annotations[corev1.MirrorPodAnnotationKey]; hash != "" {
				ending[hash] = true
			}
		}
	}
	p.ending.Store(&ending)
	live, synced := p.Sandboxes()
	p.interfaces.told()
	node.Unable = p.reportDevices(start)
	for _, port := range p.interfaces.restored {
		p.Log.Info("a port's carrier is back: its groups are joined anew", "device", port.Device, "port", port.Number)
		p.Table.Renew(port)
	}
	p.interfaces.restored = nil
	if !synced {
		// Which sandboxes live isn't known: whatever is joined stays. The
		// tracker triggers once it knows.
		return reconcile.Result{RequeueAfter: settledListing}, nil
	}

	pods, objects := p.matchPods(live, apiPods.Items)
	interfaces := p.listInterfaces(pods, live, start)
	planningGroups := p.accepted.of(groups.Items)
	wanted, verdicts := membership.Plan(planningGroups, pods, node, interfaces, p.Limits)
	for i := range wanted {
		if wanted[i].Scope == membership.NodeScope {
			wanted[i].NetNS = p.NodeNetNS
		}
	}
	p.Table.Apply(wanted)

	state := planned{groups: planningGroups, pods: pods, objects: objects, verdicts: verdicts, held: p.Table.Snapshot()}
	p.Record.SetGroups(state.numbers(), true)
	p.Reporter.set(state.answers(apiPods.Items))
	p.Metrics.observe(time.Since(start), state.held, verdicts)
	if !p.planned.Swap(true) {
		p.Log.Info("memberships planned for the first time", "groups", len(planningGroups), "pods", len(pods), "wanted", len(wanted))
	}
	return reconcile.Result{RequeueAfter: max(p.interfaces.settle(state.unsatisfied(), start), time.Millisecond)}, nil
}

// node is what planning knows of the node. Where there is no Node any more, its
// last labels count: the agent lives.
func (p *NodePlanner) node(ctx context.Context) (membership.Node, error) {
	node := ownNodeMetadata()
	err := p.nodes.Get(ctx, client.ObjectKey{Name: p.NodeName}, node)
	switch {
	case err == nil:
		p.labels = node.Labels
		if p.nodeUID != node.UID {
			p.nodeUID = node.UID
			p.Record.nodeMade()
		}
	case !apierrors.IsNotFound(err):
		return membership.Node{}, fmt.Errorf("reading the Node: %w", err)
	}
	return membership.Node{Labels: p.labels}, nil
}

// matchPods finds the pods with a live sandbox that ask for groups, and the
// API's object of each, by sandbox's pod UID, where there is one.
//
// The annotation is the API's object's, so that an edit of a running pod is
// followed; it is the sandbox's copy from the pod's start where the object is
// gone or not known yet. The order is that of the sandboxes, oldest first.
func (p *NodePlanner) matchPods(live []sandbox.Sandbox, apiPods []corev1.Pod) ([]membership.Pod, map[string]*corev1.Pod) {
	byUID := make(map[string]*corev1.Pod, len(apiPods))
	for i := range apiPods {
		byUID[string(apiPods[i].UID)] = &apiPods[i]
	}
	for i := range apiPods {
		pod := &apiPods[i]
		// A static pod's sandbox has kubelet's UID of it, which the mirror
		// object carries as a hash.
		if hash := pod.Annotations[corev1.MirrorPodAnnotationKey]; hash != "" && byUID[hash] == nil {
			byUID[hash] = pod
		}
	}
	annotations := make(map[string]string, len(live))
	var pods []membership.Pod
	objects := map[string]*corev1.Pod{}
	for _, s := range live {
		annotation := s.Annotations[v1alpha1.GroupsAnnotation]
		object := byUID[s.PodUID]
		if object != nil && object.Namespace == s.PodNamespace && object.Name == s.PodName {
			annotation = object.Annotations[v1alpha1.GroupsAnnotation]
			annotations[s.ID] = annotation
			objects[s.PodUID] = object
		} else if last, ok := p.annotations[s.ID]; ok {
			annotation = last
			annotations[s.ID] = last
		}
		if strings.TrimSpace(annotation) == "" {
			continue
		}
		pod := membership.Pod{UID: s.PodUID, Namespace: s.PodNamespace, Name: s.PodName, SandboxID: s.ID, NetNS: s.NetNS}
		if p.NodeInterfacesOnly {
			pod.NetNS = ""
		}
		pod.Requests, pod.RequestError = membership.ParseRequests(annotation, s.PodNamespace)
		pods = append(pods, pod)
	}
	p.annotations = annotations
	return pods, objects
}

func (p *NodePlanner) listInterfaces(pods []membership.Pod, live []sandbox.Sandbox, now time.Time) map[string]membership.Interfaces {
	created := make(map[string]time.Time, len(live))
	for _, s := range live {
		created[s.ID] = s.CreatedAt
	}
	found := map[string]membership.Interfaces{
		membership.NodeScope: p.interfaces.list(membership.NodeScope, p.NodeNetNS, time.Time{}, now),
	}
	for _, pod := range pods {
		if pod.NetNS != "" {
			found[pod.SandboxID] = p.interfaces.list(pod.SandboxID, pod.NetNS, created[pod.SandboxID], now)
		}
	}
	return found
}

// reportDevices brings the node's devices and its conditions up to date, and
// returns the ports that nothing can be joined on.
func (p *NodePlanner) reportDevices(now time.Time) map[membership.Port]membership.Problem {
	devices, err := p.interfaces.devices(now)
	own := p.interfaces.list(membership.NodeScope, p.NodeNetNS, time.Time{}, now)
	problems := p.probe(devices, own.RDMA)
	if p.SelfTest != nil {
		p.SelfTest.setInterfaces(own.RDMA)
		found, passed, pending := p.SelfTest.results()
		problems = append(slices.Clone(problems), found...)
		p.Record.SetCondition(selfTested(found, passed, pending))
	}
	worst := worstProblems(problems, devices)
	if err == nil {
		ports := nodeDevices(devices)
		showProblems(ports, worst)
		p.Record.SetDevices(ports)
	}
	p.Metrics.observeProblems(worst)
	p.Record.SetCondition(rdmaReady(p.Table.Available(), devices, err, p.Simulated))
	return unable(worst)
}

// probedInventory is what a probe depends on.
type probedInventory struct {
	devices    []rdma.Device
	listed     time.Time // the devices
	interfaces []rdma.Interface
	available  bool
}

// probe looks for problems anew where the inventory has changed, and with each
// listing of the devices as long as a port is refused: a kernel adds a GID of
// RoCE v1 before the one of v2.
func (p *NodePlanner) probe(devices []rdma.Device, interfaces []rdma.Interface) []*rdma.Problem {
	inventory := probedInventory{devices, p.interfaces.foundAt, interfaces, p.Table.Available() == nil}
	refused := slices.ContainsFunc(p.problems, func(problem *rdma.Problem) bool { return refusing(problem.Reason) })
	if p.probedFor.available == inventory.available && samePorts(p.probedFor.devices, devices) &&
		reflect.DeepEqual(p.probedFor.interfaces, interfaces) && (!refused || p.probedFor.listed.Equal(inventory.listed)) {
		return p.problems
	}
	problems, err := p.interfaces.probe()
	if err != nil {
		return p.problems // the listings tell what is wrong
	}
	p.problems, p.probedFor = problems, inventory
	return problems
}

// rdmaReady is the condition RDMAReady.
func rdmaReady(unavailable error, devices []rdma.Device, listing error, simulated bool) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionRDMAReady, Status: metav1.ConditionFalse}
	switch {
	case errors.Is(unavailable, syscall.ENOENT):
		c.Reason = v1alpha1.ReasonModuleNotLoaded
		c.Message = "kernel module rdma_ucm isn't loaded (no /dev/infiniband/rdma_cm); run modprobe rdma_ucm"
	case unavailable != nil:
		c.Reason, c.Message = v1alpha1.ReasonRDMACMFailed, truncate(unavailable.Error(), maxConditionMessage)
	case listing != nil:
		c.Reason, c.Message = v1alpha1.ReasonRDMACMFailed, truncate(listing.Error(), maxConditionMessage)
	case len(devices) == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoRDMADevice, "the node has no RDMA device: is the NIC's RDMA driver loaded (rdma link show)?"
	case simulated:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonSimulated
		c.Message = "simulated fabric: nothing is joined on real hardware"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonRDMAAvailable
		c.Message = fmt.Sprintf("rdma_cm can be used, %d RDMA devices", len(devices))
	}
	return c
}

// nodeControllerOptions are what the controllers of an agent have in common: an
// agent waits for the API server as long as it takes, and there may be several
// agents in one process.
func nodeControllerOptions[request comparable](r reconcile.TypedReconciler[request]) controller.TypedOptions[request] {
	return controller.TypedOptions[request]{
		Reconciler:         r,
		NeedLeaderElection: ptr.To(false),
		CacheSyncTimeout:   365 * 24 * time.Hour,
		SkipNameValidation: ptr.To(true),
	}
}

func podKey(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
