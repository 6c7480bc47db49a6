package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PortSpace is the rdma_cm port space that a group is joined in. On InfiniBand
// it decides the MGID, the Q_Key and whose MTU and rate the group gets; on
// RoCE it makes no difference on the wire.
// +kubebuilder:validation:Enum=UDP;IPoIB
type PortSpace string

const (
	PortSpaceUDP   PortSpace = "UDP"
	PortSpaceIPoIB PortSpace = "IPoIB"
)

// Mode is how a port takes part in a group.
// +kubebuilder:validation:Enum=FullMember;SendOnlyFullMember
type Mode string

const (
	// FullMember sends and receives.
	FullMember Mode = "FullMember"
	// SendOnlyFullMember only sends: nothing is delivered to the port.
	SendOnlyFullMember Mode = "SendOnlyFullMember"
)

// LinkLayer is the link layer of an RDMA port.
// +kubebuilder:validation:Enum=Ethernet;InfiniBand
type LinkLayer string

const (
	LinkLayerEthernet   LinkLayer = "Ethernet"
	LinkLayerInfiniBand LinkLayer = "InfiniBand"
)

const (
	// GroupFinalizer holds a MulticastGroup until every node that could have
	// been a member has confirmed that it left.
	GroupFinalizer = Domain + "/leave"

	// ConditionAccepted says whether the group is in force. Agents act on an
	// accepted generation only.
	ConditionAccepted = "Accepted"
	// ConditionReady is True when every membership that is wanted is joined.
	ConditionReady = "Ready"
)

// Reasons of the conditions of a MulticastGroup.
const (
	ReasonAccepted        = "Accepted"
	ReasonAddressConflict = "AddressConflict"
	ReasonAllJoined       = "AllJoined"
	ReasonNoMembers       = "NoMembers"
	ReasonSomeFailing     = "SomeFailing"
	ReasonJoining         = "Joining"
	ReasonNotAccepted     = "NotAccepted"
	ReasonLeaving         = "Leaving"
)

// MulticastGroupSpec is what a user asks for.
type MulticastGroupSpec struct {
	// address is the IPv4 or IPv6 multicast address of the group in its
	// canonical form. It can't be changed.
	// +required
	Address string `json:"address,omitempty"`

	// portSpace is the rdma_cm port space that the group is joined in: UDP or
	// IPoIB. It can't be changed.
	// +optional
	// +default="UDP"
	PortSpace PortSpace `json:"portSpace,omitempty"`

	// mode is the most that a pod may ask for.
	// +optional
	// +default="FullMember"
	Mode Mode `json:"mode,omitempty"`

	// interfaceSelector says which of a pod's RDMA interfaces take part.
	// Empty: all of them.
	// +optional
	InterfaceSelector *InterfaceSelector `json:"interfaceSelector,omitempty"`

	// allowedNamespaces lists further namespaces whose pods may ask for this
	// group; "*" stands for all. The group's own namespace always may.
	// +optional
	// +listType=set
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
}

// InterfaceSelector selects RDMA interfaces: AND across its fields, OR within
// one. An empty field selects everything.
type InterfaceSelector struct {
	// linkLayers of the interface's RDMA port.
	// +optional
	// +listType=set
	LinkLayers []LinkLayer `json:"linkLayers,omitempty"`

	// devices are shell patterns (*, ?, [...]) of RDMA device names, such as
	// mlx5_*.
	// +optional
	// +listType=set
	Devices []string `json:"devices,omitempty"`

	// interfaces are shell patterns of network interface names, such as net*.
	// +optional
	// +listType=set
	Interfaces []string `json:"interfaces,omitempty"`

	// subnets in CIDR notation, one of which an address of the interface is in.
	// +optional
	// +listType=set
	Subnets []string `json:"subnets,omitempty"`
}

// MulticastGroupStatus is what is known of the group's memberships.
type MulticastGroupStatus struct {
	// conditions are Accepted and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes counts the nodes that take part.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`
}

// NodeCounts counts nodes.
type NodeCounts struct {
	// summary is joined/desired.
	// +optional
	Summary string `json:"summary,omitempty"`
	// desired is the number of nodes that a membership is wanted on.
	// +optional
	Desired int32 `json:"desired"`
	// joined is the number of nodes on which everything wanted is joined.
	// +optional
	Joined int32 `json:"joined"`
	// failing is the number of nodes on which something wanted can't be joined.
	// +optional
	Failing int32 `json:"failing"`
}

// MulticastGroup is a multicast group that pods can ask to be members of.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type MulticastGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +required
	Spec MulticastGroupSpec `json:"spec"`
	// +optional
	Status MulticastGroupStatus `json:"status,omitempty"`
}

// MulticastGroupList is a list of MulticastGroups.
// +kubebuilder:object:root=true
type MulticastGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MulticastGroup `json:"items"`
}
