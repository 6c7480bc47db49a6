package deviceplugin

import (
	"strings"
	"time"
)

// Names and sizes that users see.
const (
	// Prefix is the domain of this project's own resources.
	Prefix = "rdma-multicast.dev"
	// DefaultResource is what every RDMA device is advertised as where there is
	// no configuration file.
	DefaultResource = Prefix + "/nic"
	// GateResource is the resource without a device, which is always served.
	GateResource = Prefix + "/gate"
	// DefaultResourcePrefix is that of a resource whose configuration names none,
	// as k8s-rdma-shared-dev-plugin has it: pods keep the names that they ask for.
	DefaultResourcePrefix = "rdma"
	// DefaultSlots is how many times a device can be handed out unless configured.
	DefaultSlots = 1000
	// DefaultUpdateInterval is the time between two looks at all devices, in
	// seconds, beside those that the kernel's notifications cause.
	DefaultUpdateInterval = 60
)

// Config is the configuration file, in JSON or YAML. A file of
// k8s-rdma-shared-dev-plugin is one.
type Config struct {
	// PeriodicUpdateInterval is the time between two looks at all devices, in
	// seconds, 0 to 86,400; 0: only when the kernel tells of a change. Default 60.
	PeriodicUpdateInterval *int `json:"periodicUpdateInterval,omitempty"`
	// ConfigList are the resources, at most 64; it may be empty, not left out.
	ConfigList []Resource `json:"configList"`
}

// Resource is a resource of kubelet's: a name, and the RDMA devices behind it.
type Resource struct {
	// ResourceName is the name without its prefix: at most 63 letters, digits,
	// "-", "_" and ".". Unique, since it is a path in the container too.
	ResourceName string `json:"resourceName"`
	// ResourcePrefix is a DNS subdomain. Default "rdma".
	ResourcePrefix string `json:"resourcePrefix,omitempty"`
	// RDMAHCAMax is how many times each device can be handed out, 0 to 10,000.
	// Default 1,000. A resource has at most 32,768 slots, of which each of its
	// devices then gets an equal share. (k8s-rdma-shared-dev-plugin takes it as the
	// whole resource's number, and gives a container all of its devices.)
	RDMAHCAMax *int `json:"rdmaHcaMax,omitempty"`
	// Devices are network interfaces: the same as selectors.ifNames, and only one
	// of the two may be given.
	Devices []string `json:"devices,omitempty"`
	// Selectors say which devices belong; without any, all do.
	Selectors Selectors `json:"selectors"`
	// ExposeRDMACM gives /dev/infiniband/rdma_cm too, to programs that join by
	// themselves. Where there is none the devices are unhealthy.
	ExposeRDMACM bool `json:"exposeRDMACM,omitempty"`
	// ExposeUMAD gives the umad nodes of devices that have any too: with them a
	// container can send anything to the subnet manager.
	ExposeUMAD bool `json:"exposeUMAD,omitempty"`
	// CDI hands devices out by the names of a Container Device Interface file,
	// which is kept for the runtime, instead of by their nodes.
	CDI bool `json:"cdi,omitempty"`
}

// Selectors say which RDMA devices belong to a resource: those that match every
// list given, and in each at least one of its entries. Lists have at most 256.
// Names of interfaces, devices and PCI addresses may be patterns (path.Match).
type Selectors struct {
	// Vendors and DeviceIDs are PCI IDs, four hexadecimal digits: "15b3".
	Vendors   []string `json:"vendors,omitempty"`
	DeviceIDs []string `json:"deviceIDs,omitempty"`
	// Drivers are those of the device underneath: "mlx5_core".
	Drivers []string `json:"drivers,omitempty"`
	// IfNames are network interfaces of the node: "ens1f0". One that was moved
	// into a pod still counts.
	IfNames []string `json:"ifNames,omitempty"`
	// LinkTypes are "ether" and "infiniband".
	LinkTypes []string `json:"linkTypes,omitempty"`
	// LinkLayers are "Ethernet" and "InfiniBand": LinkTypes by RDMA's names.
	LinkLayers []string `json:"linkLayers,omitempty"`
	// PCIAddresses are those such as "0000:3b:00.0".
	PCIAddresses []string `json:"pciAddresses,omitempty"`
	// RDMADevices are the devices' own names: "mlx5_0", "rxe*".
	RDMADevices []string `json:"rdmaDevices,omitempty"`
}

// Default is the configuration without a file: every RDMA device under
// DefaultResource.
func Default() *Config {
	name := strings.TrimPrefix(DefaultResource, Prefix+"/")
	return &Config{ConfigList: []Resource{{ResourcePrefix: Prefix, ResourceName: name}}}
}

// Name is the resource's name as pods ask for it.
func (r *Resource) Name() string {
	if r.ResourcePrefix == "" {
		return DefaultResourcePrefix + "/" + r.ResourceName
	}
	return r.ResourcePrefix + "/" + r.ResourceName
}

// slots is how many slots each device of the resource has.
func (r *Resource) slots() int {
	if r.RDMAHCAMax == nil {
		return DefaultSlots
	}
	return *r.RDMAHCAMax
}

// interval is the time between two looks at all devices; 0: none.
func (c *Config) interval() time.Duration {
	if c.PeriodicUpdateInterval == nil {
		return DefaultUpdateInterval * time.Second
	}
	return time.Duration(*c.PeriodicUpdateInterval) * time.Second
}
