package v1alpha1

// Reasons of the condition Accepted of a MulticastGroup.
const (
	// ReasonAccepted (True): the group is in force, agents may join it.
	ReasonAccepted = "Accepted"
	// ReasonAddressConflict (False): another group has the same address on the
	// fabric; the message names it. The group is accepted by itself once the
	// other one is gone.
	ReasonAddressConflict = "AddressConflict"
)

// Reasons of the condition Ready of a MulticastGroup.
const (
	// ReasonAllJoined (True): every membership that is wanted is joined. Of a
	// pod's condition GroupsJoined as well.
	ReasonAllJoined = "AllJoined"
	// ReasonNoMembers (True): no membership is wanted: no pod asks for it, or
	// only pods that may not have it. With spec.nodes it is False: they select
	// no node, or none has answered yet.
	ReasonNoMembers = "NoMembers"
	// ReasonSomeFailing (False): on some nodes it can't be joined, or the node
	// refuses to; the message names them and says why.
	ReasonSomeFailing = "SomeFailing"
	// ReasonJoining (False): some nodes haven't joined yet, none fails. Of a
	// pod's condition GroupsJoined as well: a join has no answer yet.
	ReasonJoining = "Joining"
	// ReasonNotAccepted (False): the group isn't in force; its condition
	// Accepted says why. Of a pod's condition GroupsJoined as well.
	ReasonNotAccepted = "NotAccepted"
	// ReasonLeaving (False): the group is being deleted; the message names the
	// nodes that haven't confirmed that they left.
	ReasonLeaving = "Leaving"
)

// Reasons of the condition EthernetAddressUnique of a MulticastGroup.
const (
	// ReasonNotShared (True): no other group in force has the same Ethernet
	// address.
	ReasonNotShared = "NotShared"
	// ReasonNotOnEthernet (True): the group has no Ethernet address: its
	// interfaceSelector leaves Ethernet out, or it is an IPv6 address or a
	// verbatim MGID, which are joined on InfiniBand alone.
	ReasonNotOnEthernet = "NotOnEthernet"
	// ReasonEthernetAddressShared (False): another group in force has the same
	// low 23 bits in its IPv4 address and with them the same Ethernet address, so
	// that NICs and switches may deliver both to receivers of either; the
	// message names it.
	ReasonEthernetAddressShared = "EthernetAddressShared"
)

// Reasons of the condition RDMAReady of a MulticastNode.
const (
	// ReasonRDMAAvailable (True): rdma_cm can be used and there is a device.
	ReasonRDMAAvailable = "RDMAAvailable"
	// ReasonSimulated (True): the agent runs on a simulated fabric; nothing is
	// joined on real hardware.
	ReasonSimulated = "Simulated"
	// ReasonModuleNotLoaded (False): the kernel module rdma_ucm isn't loaded.
	ReasonModuleNotLoaded = "ModuleNotLoaded"
	// ReasonNoRDMADevice (False): the node has no RDMA device.
	ReasonNoRDMADevice = "NoRDMADevice"
	// ReasonRDMACMFailed (False): rdma_cm can't be opened or the devices can't
	// be listed; the message has the errno.
	ReasonRDMACMFailed = "RDMACMFailed"
)

// Reasons of the condition SelfTested of a MulticastNode.
const (
	// ReasonSelfTestPassed (True): the scratch group was joined and left, and the
	// kernel's tables said so.
	ReasonSelfTestPassed = "SelfTestPassed"
	// ReasonSelfTestFailed (False): they didn't, on some port; the message names
	// it and says what was seen. Of a port's problem as well.
	ReasonSelfTestFailed = "SelfTestFailed"
	// ReasonSelfTestPending (Unknown): no port is ready to be tested on.
	ReasonSelfTestPending = "SelfTestPending"
)

// Reasons of a port's problem in a MulticastNode, the words of package rdma's
// probe; and of a pod's condition GroupsJoined (Refused) where its interface is
// one of that port and the problem stays.
const (
	// ReasonNoVerbs: the device has no uverbs node, so that no program can attach
	// a queue pair.
	ReasonNoVerbs = "NoVerbs"
	// ReasonIWARP: the device speaks iWARP, which has no multicast.
	ReasonIWARP = "IWARP"
	// ReasonRoCEv1: the port, or what rdma_cm uses on it, is RoCE v1, whose leave
	// takes back an IGMP membership that its join never made.
	ReasonRoCEv1 = "RoCEv1"
	// ReasonNoIPoIB: the InfiniBand port has no IPoIB interface with an address,
	// without which rdma_cm can't join.
	ReasonNoIPoIB = "NoIPoIB"
	// ReasonNoInterface: the Ethernet port has no interface with an address.
	ReasonNoInterface = "NoInterface"
	// ReasonPortNotActive: the port is down, or no subnet manager has brought it
	// up. It may go by itself.
	ReasonPortNotActive = "PortNotActive"
	// ReasonNotReady: IPoIB hasn't joined its broadcast group, or there is no way
	// to the subnet manager yet. It goes by itself.
	ReasonNotReady = "NotReady"
	// ReasonNoAnswer: a join had no answer in time. It may go by itself.
	ReasonNoAnswer = "NoAnswer"
	// ReasonWrongGroupLeft: the kernel leaves another group than it is told to,
	// as those before 5.15.22 do on RoCE.
	ReasonWrongGroupLeft = "WrongGroupLeft"
)

// Reasons of the condition GroupsJoined of a pod, beside AllJoined, Joining,
// NotAccepted and those of its port's problem; of the events on the pod as
// well. Each membership's state is in brackets.
const (
	// ReasonInvalidAnnotation (Refused): elements of the annotation groups can't
	// be understood; the message names them.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonUnknownGroup (Waiting): there is no such MulticastGroup yet.
	ReasonUnknownGroup = "UnknownGroup"
	// ReasonGroupDeleting (Waiting): the group is being deleted; it may be
	// applied again.
	ReasonGroupDeleting = "GroupDeleting"
	// ReasonNotAllowed (Refused): the group's allowedNamespaces don't list the
	// pod's namespace.
	ReasonNotAllowed = "NotAllowed"
	// ReasonModeNotAllowed (Refused): the pod asks to receive from a group that
	// can only be sent to.
	ReasonModeNotAllowed = "ModeNotAllowed"
	// ReasonInterfacesUnknown (Waiting): the interfaces couldn't be listed.
	ReasonInterfacesUnknown = "InterfacesUnknown"
	// ReasonNoRDMAInterface (Refused): neither the pod's network namespace nor
	// the node's own has an RDMA interface.
	ReasonNoRDMAInterface = "NoRDMAInterface"
	// ReasonInterfaceNotFound (Refused): there is no interface of that name.
	ReasonInterfaceNotFound = "InterfaceNotFound"
	// ReasonInterfaceNotRDMA (Refused): rdma_cm can't bind to an address of the
	// interface.
	ReasonInterfaceNotRDMA = "InterfaceNotRDMA"
	// ReasonNotSelected (Refused): the group's interfaceSelector selects none of
	// the interfaces, or not the one that is asked for.
	ReasonNotSelected = "NotSelected"
	// ReasonUnsupportedAddress (Refused): the interface's fabric has no such
	// groups: IPv6 on RoCE v2, a verbatim MGID anywhere but on InfiniBand.
	ReasonUnsupportedAddress = "UnsupportedAddress"
	// ReasonNoInterfaceAddress (Waiting): the interface has no address that
	// rdma_cm can bind to.
	ReasonNoInterfaceAddress = "NoInterfaceAddress"
	// ReasonAddressInUse (Waiting): another group holds the address on the
	// interface still.
	ReasonAddressInUse = "AddressInUse"
	// ReasonPodLimitReached (Refused): the pod has as many memberships as the
	// agent allows (--max-memberships-per-pod).
	ReasonPodLimitReached = "PodLimitReached"
	// ReasonNodeLimitReached (Refused): the node has as many memberships as its
	// agent allows (--max-memberships-per-node), or takes part in 2,048 groups.
	ReasonNodeLimitReached = "NodeLimitReached"
	// ReasonJoinFailed (Failing): the kernel or the subnet manager refused the
	// join, it had no answer within its deadline, or the membership was lost; it
	// is tried again. The message has the errno.
	ReasonJoinFailed = "JoinFailed"
	// ReasonWaiting (Waiting): the port, IPoIB, the subnet manager or the API
	// server isn't ready; the message says what is waited for.
	ReasonWaiting = "Waiting"
	// ReasonSandboxEnded: the pod's sandbox has ended, and its memberships with
	// it.
	ReasonSandboxEnded = "SandboxEnded"
)
