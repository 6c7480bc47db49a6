// Package rdmatest is a simulated kernel and fabric. CONTRACT, see ../contract.go.
package rdmatest

import (
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// Fabric is a simulated RoCE network: nodes, NICs, namespaces, IGMP tables.
type Fabric struct{ _ int }

func NewFabric() *Fabric { panic("contract") }

// AddNode adds a machine with its initial namespace.
func (f *Fabric) AddNode(name string) *Node { panic("contract") }

type Node struct{ _ int }

// Host is what product code gets.
func (n *Node) Host() *rdma.Host { panic("contract") }

// AddNIC adds a RoCE device with one port and its netdev in the initial namespace.
func (n *Node) AddNIC(device, netdev string, addrs ...netip.Prefix) { panic("contract") }

// AddNetNS makes a namespace at path; AddMACVLAN a child interface of a NIC in it.
func (n *Node) AddNetNS(path string)                                          { panic("contract") }
func (n *Node) AddMACVLAN(path, netdev, parent string, addrs ...netip.Prefix) { panic("contract") }
func (n *Node) AddPlainInterface(path, netdev string, addrs ...netip.Prefix)  { panic("contract") }
func (n *Node) DeleteNetNS(path string)                                       { panic("contract") }

// IGMP: groups and their counts on an interface of a namespace ("" the initial one), as /proc/net/igmp.
func (n *Node) IGMP(path, netdev string) map[netip.Addr]int { panic("contract") }

// Memberships: every rdma_cm membership alive on this node, for leak checks.
func (n *Node) Memberships() []Member { panic("contract") }

// Member is one row of Memberships.
type Member struct {
	NetNS, Interface string
	Group            netip.Addr
	SendOnly         bool
}

// OpenHandles counts open files, ids and namespaces.
func (n *Node) OpenHandles() (files, ids, namespaces int) { panic("contract") }

// UnloadUCM / LoadUCM: /dev/infiniband/rdma_cm goes and comes.
func (n *Node) UnloadUCM() { panic("contract") }
func (n *Node) LoadUCM()   { panic("contract") }

// Faults on demand: fail the next/every join of a group with an errno, or leave it unanswered.
// (exact shape up to the author)
