package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Conditions of a MulticastNode.
const (
	// ConditionRDMAReady says whether the agent can use rdma_cm and found an
	// RDMA device.
	ConditionRDMAReady = "RDMAReady"
	// ConditionSelfTested says whether this kernel keeps its memberships as it
	// should: the agent joined a scratch group at its start, looked, left it and
	// looked again.
	ConditionSelfTested = "SelfTested"
)

// Bounds of a MulticastNode's status. With all of them reached the object still
// fits what etcd takes for one (1.5 MiB).
const (
	// MaxNodeGroups is the number of groups that a node can be a member of.
	MaxNodeGroups = 2048
	// MaxNodeDevices is the number of RDMA ports that are shown.
	MaxNodeDevices = 64
	// MaxDeviceInterfaces is the number of interfaces shown for one port.
	MaxDeviceInterfaces = 32
	// MaxNodeGroupMessage is the length of an entry's message, in bytes.
	MaxNodeGroupMessage = 256
	// MaxPortProblemMessage is the length of a port's problem's message, in
	// bytes.
	MaxPortProblemMessage = 256
)

// LeaseNamePrefix precedes the node's name in the name of its agent's Lease.
const LeaseNamePrefix = "rdma-multicast-agent-"

// MulticastNodeStatus is written by the agent of the node alone.
type MulticastNodeStatus struct {
	// conditions are RDMAReady and SelfTested.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// nodeUID is the UID of the Node that the agent runs on.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// bootID is the boot ID of the kernel that holds the memberships.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// devices are the RDMA ports of the node.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=64
	Devices []NodeDevice `json:"devices,omitempty"`
	// groups has an entry for each group that this node is, or may be, a
	// member of. A MulticastGroup isn't let go while an entry names its UID.
	//
	// The list is atomic: its one writer writes it as a whole, and field
	// ownership by entry would make a full object too large for etcd.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	Groups []NodeGroup `json:"groups,omitempty"`
}

// NodeDevice is one port of one RDMA device.
type NodeDevice struct {
	// name of the RDMA device, such as mlx5_0.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name,omitempty"`
	// port number, from 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	Port int32 `json:"port,omitempty"`
	// linkLayer of the port.
	// +optional
	LinkLayer LinkLayer `json:"linkLayer,omitempty"`
	// state of the port, such as Active or Down.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	State string `json:"state,omitempty"`
	// nodeGUID of the device, sixteen hexadecimal digits in groups of four.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=19
	NodeGUID string `json:"nodeGUID,omitempty"`
	// numaNode that the device is attached to; absent where unknown.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NUMANode *int32 `json:"numaNode,omitempty"`
	// interfaces are the network interfaces of the port in the node's own
	// network namespace.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=15
	Interfaces []string `json:"interfaces,omitempty"`
	// problem is what keeps multicast from working on the port. Absent where
	// nothing was found.
	// +optional
	Problem *PortProblem `json:"problem,omitempty"`
}

// PortProblem is what keeps multicast from working on a port, whatever group is
// asked for.
type PortProblem struct {
	// reason is one word, such as RoCEv1 or NoVerbs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9]*$`
	Reason string `json:"reason,omitempty"`
	// message says what was found, and what to do. At most 256 bytes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// NodeGroup is this node's part in one group. Written before the first join,
// taken away after the last leave.
type NodeGroup struct {
	// namespace of the MulticastGroup.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the MulticastGroup.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// uid of the MulticastGroup.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid,omitempty"`
	// generation of the MulticastGroup that the numbers are about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Generation int64 `json:"generation,omitempty"`
	// members is the number of memberships wanted: one per pod and interface, and
	// one per interface of the node's own where spec.nodes selects the node.
	// +required
	// +kubebuilder:validation:Minimum=0
	Members int32 `json:"members"`
	// joined is how many of them are joined.
	// +required
	// +kubebuilder:validation:Minimum=0
	Joined int32 `json:"joined"`
	// failing is how many of them can't be joined, those included that the node
	// refuses.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failing int32 `json:"failing"`
	// message says why, for one of those that fail. At most 256 bytes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// MulticastNode shows a node's RDMA devices and the groups that it is a member
// of. It is named as its Node and written by that node's agent alone.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=mcn,categories=rdma
// +kubebuilder:printcolumn:name="RDMA",type=string,JSONPath=`.status.conditions[?(@.type=="RDMAReady")].status`,description="Whether the agent can use rdma_cm and found a device"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="RDMAReady")].reason`
// +kubebuilder:printcolumn:name="Devices",type=string,JSONPath=`.status.devices[*].name`
// +kubebuilder:printcolumn:name="Problems",type=string,JSONPath=`.status.devices[*].problem.reason`,priority=1,description="What keeps multicast from working on ports"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MulticastNode struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// status is what the node's agent tells.
	// +optional
	Status MulticastNodeStatus `json:"status,omitzero"`
}

// MulticastNodeList is a list of MulticastNodes.
// +kubebuilder:object:root=true
type MulticastNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MulticastNode `json:"items"`
}
