package v1alpha1

const (
	// GroupsAnnotation is how a pod asks for groups: a comma-separated list of
	// [namespace/]name[@interface], or a JSON list of objects with name,
	// namespace, interface, mode and required.
	GroupsAnnotation = Domain + "/groups"

	// GroupStatusAnnotation is the agent's answer: a JSON list of
	// MembershipStatus.
	GroupStatusAnnotation = Domain + "/group-status"

	// ConditionGroupsJoined is the pod condition that says whether all that the
	// pod asked for is joined. It can serve as a readiness gate.
	ConditionGroupsJoined = Domain + "/GroupsJoined"
)

// MembershipState is where a membership stands, the same words everywhere.
type MembershipState string

const (
	// StateWaiting means that the port, its address or the group isn't ready
	// yet.
	StateWaiting MembershipState = "Waiting"
	// StateJoining means that the join was sent; its answer hasn't come.
	StateJoining MembershipState = "Joining"
	// StateJoined means that the port is a member.
	StateJoined MembershipState = "Joined"
	// StateFailing means that the join failed and is tried again.
	StateFailing MembershipState = "Failing"
	// StateLeaving means that it is being left.
	StateLeaving MembershipState = "Leaving"
	// StateRefused means that it isn't allowed, or is something that the node can't do.
	StateRefused MembershipState = "Refused"
)

// MembershipStatus is what an application is told about one group on one of
// its pod's interfaces: one element of the annotation group-status.
// +kubebuilder:object:generate=false
type MembershipStatus struct {
	// Group is namespace/name.
	Group string `json:"group"`
	// State of the membership.
	State MembershipState `json:"state"`
	// Interface is the network interface in the pod's network namespace.
	Interface string `json:"interface,omitempty"`
	// Device is the RDMA device, such as mlx5_0.
	Device string `json:"device,omitempty"`
	// Port of the device, from 1.
	Port int32 `json:"port,omitempty"`
	// Mode that the port is joined in.
	Mode Mode `json:"mode,omitempty"`
	// MGID to attach to, as an IPv6 address (RoCE: ::ffff:239.1.1.7).
	MGID string `json:"mgid,omitempty"`
	// MLID to attach with; 0 on RoCE.
	MLID int32 `json:"mlid"`
	// QKey of the group.
	QKey uint32 `json:"qkey,omitempty"`
	// GID is the value of the port's GID to send from.
	GID string `json:"gid,omitempty"`
	// GIDIndex is where that GID was in the port's table at the join. It can
	// move: look GID up again.
	GIDIndex *int32 `json:"gidIndex,omitempty"`
	// GIDType is how packets from that GID look on the wire: "RoCE v2"; absent
	// on InfiniBand.
	GIDType string `json:"gidType,omitempty"`
	// PKey is the P_Key that the group is joined in, 65535 on RoCE.
	PKey int32 `json:"pkey,omitempty"`
	// PKeyIndex is where that P_Key was in the port's table at the join; the
	// queue pair has to be made with it.
	PKeyIndex *int32 `json:"pkeyIndex,omitempty"`
	// TrafficClass for the address handle, 0 to 255: on RoCE the group's
	// spec.trafficClass, on InfiniBand the subnet manager's.
	TrafficClass int32 `json:"trafficClass,omitempty"`
	// Epoch grows with each join of this membership, also when the agent was
	// restarted in between; it begins anywhere. Once it has changed, build
	// the address handle anew, and attach anew where the MLID changed.
	Epoch int64 `json:"epoch,omitempty"`
	// Reason is one word for why it isn't joined, one of those of the pod's
	// condition GroupsJoined.
	Reason string `json:"reason,omitempty"`
	// Message says why it isn't joined.
	Message string `json:"message,omitempty"`
}
