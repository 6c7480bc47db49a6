// Package rdma is rdma_cm multicast in pure Go: it joins and leaves RDMA
// multicast groups through the kernel's /dev/infiniband/rdma_cm, as librdmacm's
// rdma_join_multicast(3) and rdma_leave_multicast(3) do, lists the RDMA devices
// and the network interfaces that they serve, and watches them.
//
// It needs no cgo and no library. It never touches the data path: it has no
// queue pairs, sends nothing and receives nothing. A program that has a queue
// pair of its own lets Join attach it and Leave detach it (QueuePair); a
// program that hasn't still holds the membership, and whoever attached to the
// group on that port gets the packets.
//
// # What is what
//
// An RDMA device (mlx5_0) has ports. A port's link layer is InfiniBand, or
// Ethernet, where RDMA runs as RoCE. Groups have IP addresses, as ports have:
// a network interface over the port lends the port its own (an IPoIB interface
// on InfiniBand; the netdev, a VLAN or a macvlan of it on RoCE). So a program
// names the port by an address of such an interface, and Interfaces lists them.
//
// On the wire a group is an MGID, made from its address (MapMGID) or, on
// InfiniBand, given verbatim (JoinMGID). There the subnet manager admits a member
// and gives the group its MLID; on RoCE v2 the member is one by IGMP, and
// switches that snoop it deliver. RoCE v1 has neither, and has to be left alone
// (ReasonRoCEv1).
//
// # Joining
//
// An event channel (Channel) is an open file of rdma_cm. It holds ids (ID), each
// bound to an address, and through them memberships. A join is asked for by
// Join, and answered by an event of the channel:
//
//	ch, err := rdma.Local().OpenChannel()
//	...
//	defer ch.Close()
//	id, err := ch.NewID(nil, rdma.PortSpaceUDP)
//	...
//	err = id.Bind(netip.MustParseAddr("10.0.0.2")) // an address of the RDMA interface
//	...
//	group := netip.MustParseAddr("239.1.1.7")
//	_, err = id.Join(group, rdma.JoinOptions{})
//	...
//	event, err := ch.Next(ctx) // MulticastJoined, or MulticastError
//	...
//	err = id.Leave(group)
//
// The event's Params are what a sender's address handle and a receiver's
// attaching take. Whoever holds a membership goes on calling Next: it may be
// lost (MulticastError), and nobody but the program joins again. On RoCE the
// loss of a link or an address gives no event at all: that is what
// WatchInterfaces tells.
//
// A membership lives as long as the open file behind its Channel: when the
// process ends, the kernel leaves every group.
//
// # Before joining
//
// Probe tells what is missing on a host, and SelfTest tries out whether joining
// and leaving work on an interface. Both give a Reason, a stable word, with each
// Problem.
//
// # Network namespaces
//
// Whatever takes a *NetNS works in that namespace, nil being the calling
// process's. An ID and a WatchInterfaces keep the namespace that they were made
// in, and its interfaces, alive until they are closed, a NetNS too.
//
// # Errors
//
// Every error of an operation is an *OpError around the kernel's errno, to be
// tested by errors.Is: errors.Is(err, syscall.EADDRNOTAVAIL). The errnos that
// an operation gives are listed at its method. ENOTSUPP (524) is an errno that
// the kernel gives although user space has no name for it. SelfTest's error is
// a *Problem, and Next gives its context's.
//
// # Concurrency
//
// Everything is safe for concurrent use. Calls on one ID are carried out one
// after the other.
//
// # Testing
//
// Package rdmatest has a simulated kernel and fabric: its nodes' Host takes the
// place of Local. All examples run on it.
package rdma
