package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConditionRDMAReady of a MulticastNode says whether its agent can use rdma_cm
// and found an RDMA device.
const ConditionRDMAReady = "RDMAReady"

// Reasons of the conditions of a MulticastNode.
const (
	ReasonRDMAAvailable   = "RDMAAvailable"
	ReasonModuleNotLoaded = "ModuleNotLoaded"
	ReasonNoRDMADevice    = "NoRDMADevice"
	ReasonRDMACMFailed    = "RDMACMFailed"
	// ReasonSimulated: the agent runs on a simulated fabric; nothing is joined
	// on real hardware.
	ReasonSimulated = "Simulated"
)

// LeaseNamePrefix precedes the node's name in the name of its agent's Lease.
const LeaseNamePrefix = "rdma-multicast-agent-"

// MulticastNodeStatus is written by the agent of the node alone.
type MulticastNodeStatus struct {
	// nodeUID is the UID of the Node that the agent runs on.
	// +optional
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// bootID is the boot ID of the kernel that holds the memberships.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// conditions: RDMAReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// devices are the RDMA ports of the node.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=port
	Devices []NodeDevice `json:"devices,omitempty"`
	// groups has an entry for each group that this node is, or may be, a
	// member of. A MulticastGroup isn't let go while an entry names its UID.
	// +optional
	// +listType=map
	// +listMapKey=uid
	Groups []NodeGroup `json:"groups,omitempty"`
}

// NodeDevice is one port of one RDMA device.
type NodeDevice struct {
	// name of the RDMA device, such as mlx5_0.
	// +required
	Name string `json:"name,omitempty"`
	// port number, from 1.
	// +required
	Port int32 `json:"port,omitempty"`
	// linkLayer of the port.
	// +optional
	LinkLayer LinkLayer `json:"linkLayer,omitempty"`
	// state of the port, such as Active or Down.
	// +optional
	State string `json:"state,omitempty"`
	// nodeGUID of the device, sixteen hexadecimal digits in groups of four.
	// +optional
	NodeGUID string `json:"nodeGUID,omitempty"`
	// numaNode that the device is attached to; absent where unknown.
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
	// interfaces are the network interfaces of the port in the node's own
	// network namespace.
	// +optional
	// +listType=set
	Interfaces []string `json:"interfaces,omitempty"`
}

// NodeGroup is this node's part in one group. Written before the first join,
// taken away after the last leave.
type NodeGroup struct {
	// namespace of the MulticastGroup.
	// +required
	Namespace string `json:"namespace,omitempty"`
	// name of the MulticastGroup.
	// +required
	Name string `json:"name,omitempty"`
	// uid of the MulticastGroup.
	// +required
	UID types.UID `json:"uid,omitempty"`
	// generation of the MulticastGroup that the numbers are about.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// members is the number of memberships wanted: one per pod and interface.
	// +optional
	Members int32 `json:"members"`
	// joined is how many of them are joined.
	// +optional
	Joined int32 `json:"joined"`
	// failing is how many of them can't be joined.
	// +optional
	Failing int32 `json:"failing"`
	// message says why, for one of those that fail.
	// +optional
	Message string `json:"message,omitempty"`
}

// MulticastNode shows a node's RDMA devices and the groups that it is a member
// of. It is named as its Node and written by that node's agent alone.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type MulticastNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Status MulticastNodeStatus `json:"status,omitempty"`
}

// MulticastNodeList is a list of MulticastNodes.
// +kubebuilder:object:root=true
type MulticastNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MulticastNode `json:"items"`
}
