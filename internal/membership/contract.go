// Package membership is the heart of the agent. CONTRACT, see below; replaced
// by the real package, whose surface is a superset of this.
//
// It knows rdma/, not Kubernetes.
package membership

import (
	"context"
	"errors"
	"net/netip"

	"github.com/go-logr/logr"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// Group is a MulticastGroup as planning sees it.
type Group struct {
	UID        string
	Namespace  string
	Name       string
	Generation int64
	Address    netip.Addr
	PortSpace  rdma.PortSpace
	Mode       rdma.JoinMode // the most that a pod may ask for: FullMember allows both
	Selector   Selector
	Allowed    []string // namespaces, "*"
	Accepted   bool     // Accepted=True for exactly this generation
	Deleting   bool
}

type Selector struct {
	LinkLayers []string
	Devices    []string // shell patterns
	Interfaces []string
	Subnets    []netip.Prefix
}

// Request is one group that a pod asks for (parsed from its annotation).
type Request struct {
	Namespace string // defaulted to the pod's
	Name      string
	Interface string // "" all that match
	Mode      *rdma.JoinMode
	Required  bool // default true
}

// Pod is a pod with a live sandbox on this node.
type Pod struct {
	UID, Namespace, Name string
	SandboxID            string
	NetNS                string // path; "" host network
	Requests             []Request
	RequestError         error // the annotation can't be parsed; some of Requests may still be valid
}

// NodeScope is the Scope of the node's own network namespace.
const NodeScope = ""

// Interfaces of each scope: sandbox ID, or NodeScope. Links lists every link name, RDMA or not.
type Interfaces struct {
	RDMA  []rdma.Interface
	Links []string
	Err   error // couldn't be listed
}

// Key names one membership. Address and port space are the kernel's key, so
// that two owners of one address never coexist on one id.
type Key struct {
	Scope     string // sandbox ID, or NodeScope
	Interface string
	PortSpace rdma.PortSpace
	Address   netip.Addr
}

// Wanted is a membership that should be.
type Wanted struct {
	Key
	GroupUID, GroupNamespace, GroupName string
	Generation                          int64
	Mode                                rdma.JoinMode // full as soon as one holder is a full member
	NetNS                               string        // path; "" the node's own
	BindAddr                            netip.Addr
	Device                              string
	Port                                int
	Holders                             []string // pod UIDs
}

// Verdict is what can't be wanted, per pod and request: Waiting or Refused, with the reason.
type Verdict struct {
	PodUID         string
	GroupNamespace string
	GroupName      string
	GroupUID       string // "" unknown group
	Interface      string
	State          State
	Reason         string // stable CamelCase word: UnknownGroup, NotAllowed, InterfaceNotFound, InterfaceNotRDMA, NoRDMAInterface, InvalidAnnotation, UnsupportedAddress, LimitReached, NotAccepted
	Message        string
}

type State string // Waiting, Joining, Joined, Failing, Leaving, Refused (same words as the API)

const (
	StateWaiting State = "Waiting"
	StateJoining State = "Joining"
	StateJoined  State = "Joined"
	StateFailing State = "Failing"
	StateLeaving State = "Leaving"
	StateRefused State = "Refused"
)

// Reasons of a Verdict.
const (
	ReasonUnknownGroup      = "UnknownGroup"
	ReasonNotAllowed        = "NotAllowed"
	ReasonNotAccepted       = "NotAccepted"
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonInterfaceNotFound = "InterfaceNotFound"
	ReasonInterfaceNotRDMA  = "InterfaceNotRDMA"
	ReasonNoRDMAInterface   = "NoRDMAInterface"
)

// ErrGroupGone is Protocol.Begin's answer for a group that was or is being deleted.
var ErrGroupGone = errors.New("the group was deleted")

// ParseRequests parses a pod's annotation; see the brief.
func ParseRequests(annotation, podNamespace string) ([]Request, error) { panic("contract") }

// Plan is a pure function.
func Plan(groups []Group, pods []Pod, interfaces map[string]Interfaces, limits Limits) ([]Wanted, []Verdict) {
	panic("contract")
}

type Limits struct{ PerPod, PerNode int }

// Protocol is the cluster's side of the leave protocol, implemented by
// package controllers.
type Protocol interface {
	// Begin is called before the first join of a group on this node: the entry
	// is written to the MulticastNode, then the group is read live; nil: join.
	// ErrGroupGone: don't join; the entry was taken back.
	Begin(ctx context.Context, groupUID, namespace, name string, generation int64) error
	// End is called after the last leave of a group on this node.
	End(ctx context.Context, groupUID string) error
}

// Table holds the node's memberships and makes them be as wanted.
type Table struct{ _ int }

type TableOptions struct {
	Host     *rdma.Host
	Protocol Protocol
	// Changed is called (not under a lock, coalesced) when a snapshot would differ.
	Changed func()
	Log     logr.Logger
	// clock, backoff, join timeout ... up to the author
}

func NewTable(TableOptions) *Table { panic("contract") }

// Run owns the event channel and the workers until ctx ends, then closes every id (leaving all) without calling Protocol.End.
func (t *Table) Run(ctx context.Context) error { panic("contract") }

// Apply sets what is wanted. Returns at once.
func (t *Table) Apply([]Wanted) { panic("contract") }

// LeaveScope leaves everything of a sandbox now, synchronously, and refuses joins for it from then on (until Forget).
// Waits the kernel's IGMP timer out (about 40 ms) once if anything was left. Bounded by ctx. Used by NRI's StopPodSandbox.
func (t *Table) LeaveScope(ctx context.Context, scope string) error { panic("contract") }

// Snapshot of every membership.
func (t *Table) Snapshot() []Status { panic("contract") }

// Status of one membership.
type Status struct {
	Wanted
	State   State
	Message string
	Err     error
	Params  rdma.Params
	Epoch   int64
}

// Available: why rdma_cm can't be used at all; ENOENT while the module isn't loaded.
func (t *Table) Available() error { panic("contract") }

// Also: Available() error — why rdma_cm can't be used at all (module not loaded), nil when it can.
