package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PortSpace is the rdma_cm port space that a group is joined in. On InfiniBand
// it decides the MGID, the Q_Key and whose MTU and rate the group gets; on
// RoCE it makes no difference on the wire.
// +kubebuilder:validation:Enum=UDP;IPoIB
type PortSpace string

// The port spaces.
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

// The link layers.
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
	// ConditionEthernetAddressUnique says whether no other group in force shares
	// this group's Ethernet address. It doesn't keep a group from being joined.
	ConditionEthernetAddressUnique = "EthernetAddressUnique"
)

// MulticastGroupSpec is what a user asks for.
//
// The rule of immutability stands on the spec and not on its fields, so that
// adding or removing an optional one is caught too.
// +kubebuilder:validation:XValidation:rule="has(self.address) == has(oldSelf.address) && (!has(self.address) || self.address == oldSelf.address) && has(self.mgid) == has(oldSelf.mgid) && (!has(self.mgid) || self.mgid == oldSelf.mgid) && has(self.portSpace) == has(oldSelf.portSpace) && (!has(self.portSpace) || self.portSpace == oldSelf.portSpace)",message="address, mgid and portSpace can't be changed: delete the group and apply it anew, or apply another group under another name"
// +kubebuilder:validation:XValidation:rule="!has(self.mgid) || !has(self.interfaceSelector) || !has(self.interfaceSelector.linkLayers) || self.interfaceSelector.linkLayers.size() == 0 || 'InfiniBand' in self.interfaceSelector.linkLayers",message="a verbatim MGID is joined on InfiniBand alone: add InfiniBand, leave linkLayers out, or use address instead of mgid",fieldPath=".interfaceSelector.linkLayers"
// +kubebuilder:validation:XValidation:rule="has(self.address) != has(self.mgid)",message="exactly one of address and mgid must be set: address for an IP multicast address such as 239.1.1.7, mgid for a verbatim MGID on InfiniBand such as ff15:a01b:fe80::7"
type MulticastGroupSpec struct {
	// address is the IPv4 or IPv6 multicast address of the group in its
	// canonical form, such as 239.1.1.7 or ff15::7. Allowed are 224.0.1.0 to
	// 239.255.255.255, and ff00::/8 without the reserved, interface-local and
	// link-local prefixes ff00::/16, ff01::/16, ff02::/16 and ff11::/16. It can't
	// be changed. Exactly one of address and mgid is set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="must be an IPv4 or IPv6 multicast address in its canonical form, such as 239.1.1.7 or ff15::7"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || (ip(self).family() == 4 ? cidr('224.0.0.0/4').containsIP(ip(self)) : cidr('ff00::/8').containsIP(ip(self)))",message="must be a multicast address: allowed are 224.0.1.0 to 239.255.255.255, and ff00::/8 without ff00::/16, ff01::/16, ff02::/16 and ff11::/16"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).family() != 4 || !cidr('224.0.0.0/24').containsIP(ip(self))",message="must not be link-local (224.0.0.0/24 isn't forwarded): allowed are 224.0.1.0 to 239.255.255.255, such as 239.1.1.7"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).family() != 6 || !(cidr('ff00::/16').containsIP(ip(self)) || cidr('ff01::/16').containsIP(ip(self)) || cidr('ff02::/16').containsIP(ip(self)) || cidr('ff11::/16').containsIP(ip(self)))",message="must not be reserved, interface-local or link-local: of ff00::/8, ff00::/16, ff01::/16, ff02::/16 and ff11::/16 aren't allowed; ff15::7, say, is"
	Address string `json:"address,omitempty"`

	// mgid is a verbatim MGID in its canonical form, such as ff15:a01b:fe80::7,
	// for a group that something else on an InfiniBand fabric has defined. It is
	// joined on InfiniBand interfaces alone. Allowed are ff03::/16 to ff0e::/16 and
	// ff12::/16 to ff1e::/16, without ff12:a01b::/32, which OpenSM refuses. It
	// can't be changed. Exactly one of address and mgid is set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 6 && ip.isCanonical(self) && cidr('ff00::/8').containsIP(ip(self))",message="must be a multicast GID (ff00::/8) in its canonical form, such as ff15:a01b:fe80::7"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('ff') || self.matches('^ff[01]')",message="must not use the reserved flags: a multicast GID begins with ff0 (well-known) or ff1 (transient), such as ff15:a01b:fe80::7"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^ff[01][01f]:') && !self.startsWith('ff02:')",message="must not have a reserved or interface-local scope (0, 1, f), nor be well-known and link-local (ff02::/16): ff12 to ff1e are allowed, such as ff15:a01b:fe80::7"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('ff12:a01b:')",message="must not have signature a01b with link-local scope (2), which the subnet manager keeps for itself (OpenSM: ERR 1B24): take another scope, such as ff15:a01b:fe80::7"
	MGID string `json:"mgid,omitempty"`

	// portSpace is the rdma_cm port space that the group is joined in. IPoIB
	// makes it one with the group of that address that sockets over IPoIB use;
	// UDP, the default, keeps it apart. With mgid it decides the Q_Key, MTU and
	// rate only. On RoCE there is no difference. It can't be changed.
	// +optional
	// +default="UDP"
	PortSpace PortSpace `json:"portSpace,omitempty"`

	// mode is the most that a pod may ask for, and what it gets without asking:
	// FullMember, the default, sends and receives, SendOnlyFullMember only sends.
	// +optional
	// +default="FullMember"
	Mode Mode `json:"mode,omitempty"`

	// trafficClass is the DSCP and ECN bits that applications put into their
	// address handles when they send to the group on RoCE, 0 to 255; it is told
	// them with the group's state. On InfiniBand the broadcast group's is in
	// force. 0 where it isn't set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	TrafficClass *int32 `json:"trafficClass,omitempty"`

	// interfaceSelector says which of a pod's RDMA interfaces take part.
	// Empty: all of them.
	// +optional
	InterfaceSelector *InterfaceSelector `json:"interfaceSelector,omitempty"`

	// allowedNamespaces lists further namespaces whose pods may ask for this
	// group; "*" stands for all. The group's own namespace always may.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self == '*' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a namespace, or * for all"
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`

	// nodes makes nodes members through their own interfaces whether or not a
	// pod asks, so that the fabric already delivers when one does. Absent: none.
	// +optional
	Nodes *NodeMembers `json:"nodes,omitempty"`
}

// NodeMembers selects the nodes whose own interfaces are members.
type NodeMembers struct {
	// nodeSelector is a set of labels that a node must have. Empty: every node
	// with an RDMA interface that the interfaceSelector selects.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, !format.qualifiedName().validate(key).hasValue())",message="must have labels' names as keys, such as topology.kubernetes.io/rack"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="!format.labelValue().validate(self).hasValue()",message="must be a label's value: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, or nothing"
type LabelValue string

// Labels is the nodeSelector as labels are elsewhere.
func (n *NodeMembers) Labels() map[string]string {
	labels := make(map[string]string, len(n.NodeSelector))
	for key, value := range n.NodeSelector {
		labels[key] = string(value)
	}
	return labels
}

// InterfaceSelector selects RDMA interfaces: AND across its fields, OR within
// one. An empty field selects everything.
type InterfaceSelector struct {
	// linkLayers of the interface's RDMA port: Ethernet (RoCE) or InfiniBand.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	LinkLayers []LinkLayer `json:"linkLayers,omitempty"`

	// devices are shell patterns (*, ?, [...]) of RDMA device names, such as
	// mlx5_*.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^([A-Za-z0-9_.:*?-]|\[\^?([A-Za-z0-9_.:](-[A-Za-z0-9_.:])?)+\])+$')`,message="must be a shell pattern of letters, digits, '_', '.', ':', '-', '*', '?' and classes such as [0-3] or [^ab]; mlx5_*, say"
	Devices []string `json:"devices,omitempty"`

	// interfaces are shell patterns of network interface names, such as net*.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^([A-Za-z0-9_.:*?-]|\[\^?([A-Za-z0-9_.:](-[A-Za-z0-9_.:])?)+\])+$')`,message="must be a shell pattern of letters, digits, '_', '.', ':', '-', '*', '?' and classes such as [0-3] or [^ab]; net*, say"
	Interfaces []string `json:"interfaces,omitempty"`

	// subnets in CIDR notation without host bits, one of which an address of the
	// interface is in.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a subnet in CIDR notation without host bits, such as 10.0.0.0/24 or fd00::/64"
	Subnets []string `json:"subnets,omitempty"`
}

// MulticastGroupStatus is what is known of the group's memberships.
type MulticastGroupStatus struct {
	// conditions are Accepted, Ready and, while it is accepted,
	// EthernetAddressUnique.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes counts the nodes that take part.
	// +optional
	Nodes *NodeCounts `json:"nodes,omitempty"`
}

// NodeCounts counts nodes.
type NodeCounts struct {
	// summary is joined/desired, such as 11/12.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Summary string `json:"summary,omitempty"`
	// desired is the number of nodes that a membership is wanted on.
	// +required
	// +kubebuilder:validation:Minimum=0
	Desired int32 `json:"desired"`
	// joined is the number of nodes on which everything wanted is joined.
	// +required
	// +kubebuilder:validation:Minimum=0
	Joined int32 `json:"joined"`
	// failing is the number of nodes on which something wanted can't be joined.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failing int32 `json:"failing"`
}

// MulticastGroup is a multicast group that pods can ask to be members of.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mcg,categories=rdma
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec['address','mgid']`,description="The IP multicast address, or the verbatim MGID"
// +kubebuilder:printcolumn:name="PortSpace",type=string,JSONPath=`.spec.portSpace`,priority=1
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,priority=1,description="The most that a pod may ask for"
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes.summary`,description="Nodes joined of those wanted"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MulticastGroup struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is what is asked for.
	// +required
	Spec MulticastGroupSpec `json:"spec,omitzero"`
	// status is what is known of the memberships. The controller writes it.
	// +optional
	Status MulticastGroupStatus `json:"status,omitzero"`
}

// MulticastGroupList is a list of MulticastGroups.
// +kubebuilder:object:root=true
type MulticastGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MulticastGroup `json:"items"`
}
