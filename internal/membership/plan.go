package membership

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// Group is a MulticastGroup as planning sees it.
type Group struct {
	UID        string
	Namespace  string
	Name       string
	Generation int64
	Address    netip.Addr // or the MGID
	Verbatim   bool       // Address is an MGID, joined as it is
	PortSpace  rdma.PortSpace
	Mode       rdma.JoinMode // the most that a pod may ask for: FullMember allows both
	// TrafficClass is what applications are told to send with on RoCE.
	TrafficClass uint8
	Selector     Selector
	Allowed      []string     // further namespaces whose pods may ask; "*": all
	Nodes        *NodeMembers // nil: no node is a member by itself
	Accepted     bool         // by the controller, exactly this generation
	Deleting     bool
}

// NodeMembers are the nodes whose own interfaces are members whether or not a
// pod asks.
type NodeMembers struct {
	Labels map[string]string // that a node must have; empty: every node
}

// Selector selects RDMA interfaces: AND across fields, OR within one. An empty
// field selects everything.
type Selector struct {
	LinkLayers []string
	Devices    []string // patterns as of path.Match
	Interfaces []string // patterns as of path.Match
	Subnets    []netip.Prefix
}

// Pod is a pod with a live sandbox on this node.
type Pod struct {
	UID, Namespace, Name string
	SandboxID            string
	NetNS                string // path; "": on the host's network
	Requests             []Request
	// RequestError: the annotation, or a part of it, can't be understood.
	// Requests has the rest.
	RequestError error
}

// Node is what planning knows of the node itself.
type Node struct {
	Labels map[string]string
	// Unable are the ports on which nothing can be joined, whoever asks.
	Unable map[Port]Problem
}

// Port is a port of an RDMA device.
type Port struct {
	Device string
	Number int
}

// Problem is why nothing can be joined on a port.
type Problem struct {
	Reason  string // of the verdicts, a stable word
	Message string
}

// Interfaces are those of one scope.
type Interfaces struct {
	RDMA []rdma.Interface
	// Links has every interface's name, RDMA or not.
	Links []string
	// Err: they couldn't be listed.
	Err error
}

// Limits on memberships: one per group, interface and port space. 0: none.
type Limits struct {
	PerPod  int
	PerNode int
	// Groups is the most that the node takes part in.
	Groups int
}

// Verdict is why something that a pod asks for, or that the node should have by
// itself, isn't wanted.
type Verdict struct {
	Holder         string // the pod's UID, or NodeHolder
	GroupNamespace string // "" with InvalidAnnotation
	GroupName      string
	GroupUID       string // "": no such group is known
	Interface      string // "": none in particular
	State          State  // Waiting or Refused
	Reason         string
	Message        string
}

// Reasons of verdicts, besides those of a Problem; stable words.
const (
	ReasonInvalidAnnotation  = "InvalidAnnotation"  // Refused
	ReasonUnknownGroup       = "UnknownGroup"       // Waiting: it may be applied later
	ReasonGroupDeleting      = "GroupDeleting"      // Waiting: it may be applied again
	ReasonNotAccepted        = "NotAccepted"        // Waiting
	ReasonNotAllowed         = "NotAllowed"         // Refused: by allowedNamespaces
	ReasonModeNotAllowed     = "ModeNotAllowed"     // Refused
	ReasonInterfacesUnknown  = "InterfacesUnknown"  // Waiting: couldn't be listed
	ReasonNoRDMAInterface    = "NoRDMAInterface"    // Refused
	ReasonInterfaceNotFound  = "InterfaceNotFound"  // Refused
	ReasonInterfaceNotRDMA   = "InterfaceNotRDMA"   // Refused
	ReasonNotSelected        = "NotSelected"        // Refused: by interfaceSelector
	ReasonUnsupportedAddress = "UnsupportedAddress" // Refused
	ReasonNoInterfaceAddress = "NoInterfaceAddress" // Waiting
	ReasonAddressInUse       = "AddressInUse"       // Waiting: another group's
	ReasonPodLimitReached    = "PodLimitReached"    // Refused
	ReasonNodeLimitReached   = "NodeLimitReached"   // Refused
)

// Plan decides which memberships should be, and why what else is asked for
// can't: those that pods ask for, then the node's own. interfaces has an entry for NodeScope and one for each sandbox ID with
// a namespace of its own.
//
// It is a pure function: the order in which groups, pods and interfaces have
// come about makes no difference. Where a limit is reached, or two groups claim
// one address, pods that come earlier in the list go first, so list the oldest
// first: a new pod then never costs an older one its membership. The node's own
// come last: a warm group never costs a pod its membership.
//
// wanted is sorted by Key; verdicts are in the order of pods and requests, the
// node's own last, by group.
func Plan(groups []Group, pods []Pod, node Node, interfaces map[string]Interfaces, limits Limits) (wanted []Wanted, verdicts []Verdict) {
	p := planner{
		groups:     make(map[groupName]*Group, len(groups)),
		unable:     node.Unable,
		interfaces: interfaces,
		limits:     limits,
		wanted:     map[Key]*Wanted{},
		joins:      map[string]bool{},
	}
	for i := range groups {
		p.groups[groupName{groups[i].Namespace, groups[i].Name}] = &groups[i]
	}
	for i := range pods {
		p.pod(&pods[i])
	}
	p.node(groups, node)
	p.oneStatePerPort()
	wanted = make([]Wanted, 0, len(p.wanted))
	for _, w := range p.wanted {
		slices.Sort(w.Holders)
		wanted = append(wanted, *w)
	}
	slices.SortFunc(wanted, func(a, b Wanted) int { return a.compare(b.Key) })
	return wanted, p.verdicts
}

type groupName struct{ namespace, name string }

type planner struct {
	groups     map[groupName]*Group
	unable     map[Port]Problem
	interfaces map[string]Interfaces
	limits     Limits

	wanted   map[Key]*Wanted
	joins    map[string]bool // UIDs of the groups of wanted
	verdicts []Verdict
}

// podPlan is the planning of one pod.
type podPlan struct {
	*planner
	claimant
	pod *Pod
}

// claimant is who memberships are claimed for.
type claimant struct {
	holder string // Verdict.Holder
	limit  int    // on its memberships; 0: none
	held   map[Key]bool
}

// refusal is a verdict in the making.
type refusal struct {
	state   State
	reason  string
	message string
}

func wait(reason, format string, args ...any) *refusal {
	return &refusal{Waiting, reason, fmt.Sprintf(format, args...)}
}

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{Refused, reason, fmt.Sprintf(format, args...)}
}

func (p *planner) pod(pod *Pod) {
	if pod.RequestError != nil {
		p.verdicts = append(p.verdicts, Verdict{
			Holder: pod.UID, State: Refused, Reason: ReasonInvalidAnnotation,
			Message: "the annotation can't be understood: " + pod.RequestError.Error(),
		})
	}
	pp := podPlan{planner: p, pod: pod, claimant: claimant{holder: pod.UID, limit: p.limits.PerPod, held: map[Key]bool{}}}
	for _, r := range pod.Requests {
		group := p.groups[groupName{r.Namespace, r.Name}]
		if no := pp.allowed(group, r); no != nil {
			pp.verdict(r, group, r.Interface, no)
			continue
		}
		scope, found, no := pp.resolve(group, r)
		if no != nil {
			pp.verdict(r, group, r.Interface, no)
			continue
		}
		place := place{scope: scope}
		if scope != NodeScope {
			place.netns = pod.NetNS
		}
		mode := group.Mode
		if r.Mode != nil {
			mode = *r.Mode
		}
		for _, iface := range found {
			if no := p.claim(&pp.claimant, group, mode, place, iface); no != nil {
				pp.verdict(r, group, iface.Name, no)
			}
		}
	}
}

func (p *podPlan) verdict(r Request, group *Group, iface string, no *refusal) {
	v := Verdict{
		Holder: p.holder, GroupNamespace: r.Namespace, GroupName: r.Name, Interface: iface,
		State: no.state, Reason: no.reason, Message: no.message,
	}
	if group != nil {
		v.GroupUID = group.UID
	}
	p.verdicts = append(p.verdicts, v)
}

// allowed says why the pod can't have the group, whatever the interface.
func (p *podPlan) allowed(group *Group, r Request) *refusal {
	switch {
	case group == nil:
		return wait(ReasonUnknownGroup, "there is no MulticastGroup %s/%s; it is joined as soon as it is applied", r.Namespace, r.Name)
	case p.pod.Namespace != group.Namespace && !slices.Contains(group.Allowed, p.pod.Namespace) && !slices.Contains(group.Allowed, "*"):
		return refuse(ReasonNotAllowed, "pods of namespace %s may not join MulticastGroup %s/%s; its spec.allowedNamespaces would have to list %s", p.pod.Namespace, r.Namespace, r.Name, p.pod.Namespace)
	case group.Deleting:
		return wait(ReasonGroupDeleting, "MulticastGroup %s/%s is being deleted", r.Namespace, r.Name)
	case !group.Accepted:
		return wait(ReasonNotAccepted, "MulticastGroup %s/%s isn't accepted; its condition Accepted says why", r.Namespace, r.Name)
	case r.Mode != nil && *r.Mode == rdma.FullMember && group.Mode == rdma.SendOnlyFullMember:
		return refuse(ReasonModeNotAllowed, "MulticastGroup %s/%s allows mode SendOnlyFullMember only", r.Namespace, r.Name)
	}
	return nil
}

// resolve finds the interfaces that a request is about: those of the pod's
// namespace, or the node's own if the pod has none that is RDMA-capable.
func (p *podPlan) resolve(group *Group, r Request) (scope string, found []rdma.Interface, no *refusal) {
	scope, own := p.pod.SandboxID, Interfaces{}
	if p.pod.NetNS != "" {
		var known bool
		if own, known = p.interfaces[scope]; !known {
			return "", nil, wait(ReasonInterfacesUnknown, "the interfaces in the pod's network namespace haven't been listed yet")
		}
		if own.Err != nil {
			return "", nil, wait(ReasonInterfacesUnknown, "can't list the RDMA interfaces in the pod's network namespace: %v", own.Err)
		}
	}
	candidates := own
	if len(own.RDMA) == 0 {
		// A name that the pod's namespace has means the pod's interface, even if
		// the node has one of that name too.
		if r.Interface != "" && slices.Contains(own.Links, r.Interface) {
			return "", nil, refuse(ReasonInterfaceNotRDMA, "interface %s in the pod's network namespace isn't an RDMA interface: rdma_cm can't bind to an address of it", r.Interface)
		}
		scope, candidates = NodeScope, p.interfaces[NodeScope]
		if candidates.Err != nil {
			return "", nil, wait(ReasonInterfacesUnknown, "can't list the node's RDMA interfaces: %v", candidates.Err)
		}
	}
	if r.Interface != "" {
		return p.named(group, r, scope, candidates)
	}
	found, all := group.Selector.among(candidates.RDMA)
	switch {
	case len(found) > 0:
		return scope, found, nil
	case len(all) > 0:
		return "", nil, refuse(ReasonNotSelected, "the group's interfaceSelector selects none of the RDMA interfaces %s", strings.Join(all, ", "))
	case p.pod.NetNS == "":
		return "", nil, refuse(ReasonNoRDMAInterface, "the node has no RDMA interface")
	default:
		return "", nil, refuse(ReasonNoRDMAInterface, "neither the pod's network namespace nor the node's own has an RDMA interface")
	}
}

// named resolves name@interface.
func (p *podPlan) named(group *Group, r Request, scope string, candidates Interfaces) (string, []rdma.Interface, *refusal) {
	where := "the pod's network namespace"
	if scope == NodeScope {
		where = "the node's network namespace"
	}
	for _, iface := range candidates.RDMA {
		if iface.Name != r.Interface {
			continue
		}
		if !group.Selector.matches(iface) {
			return "", nil, refuse(ReasonNotSelected, "the group's interfaceSelector doesn't select interface %s", describe(iface))
		}
		return scope, []rdma.Interface{iface}, nil
	}
	if slices.Contains(candidates.Links, r.Interface) {
		return "", nil, refuse(ReasonInterfaceNotRDMA, "interface %s in %s isn't an RDMA interface: rdma_cm can't bind to an address of it", r.Interface, where)
	}
	return "", nil, refuse(ReasonInterfaceNotFound, "there is no interface %s in %s", r.Interface, where)
}

// among are the interfaces that match, by name, and what a selector sees of all.
func (s Selector) among(interfaces []rdma.Interface) (found []rdma.Interface, all []string) {
	for _, iface := range interfaces {
		all = append(all, describe(iface))
		if s.matches(iface) {
			found = append(found, iface)
		}
	}
	slices.SortFunc(found, func(a, b rdma.Interface) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(all)
	return found, all
}

// describe tells of an interface all that a selector looks at.
func describe(iface rdma.Interface) string {
	text := fmt.Sprintf("%s (%s, device %s", iface.Name, iface.LinkLayer, iface.Device)
	for _, a := range iface.Addrs {
		text += ", " + a.Addr().String()
	}
	return text + ")"
}

func (s Selector) matches(iface rdma.Interface) bool {
	return (len(s.LinkLayers) == 0 || slices.Contains(s.LinkLayers, string(iface.LinkLayer))) &&
		matchesAny(s.Devices, iface.Device) &&
		matchesAny(s.Interfaces, iface.Name) &&
		(len(s.Subnets) == 0 || slices.ContainsFunc(s.Subnets, func(subnet netip.Prefix) bool {
			return slices.ContainsFunc(iface.Addrs, func(a netip.Prefix) bool { return subnet.Contains(a.Addr()) })
		}))
}

// matchesAny takes a malformed pattern for one that matches nothing.
func matchesAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
