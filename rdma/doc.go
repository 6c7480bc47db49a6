// Package rdma is rdma_cm multicast in pure Go: it joins and leaves RDMA
// multicast groups through the kernel's /dev/infiniband/rdma_cm, as librdmacm's
// rdma_join_multicast(3) and rdma_leave_multicast(3) do, and lists the RDMA
// devices and the interfaces that they serve.
//
// It needs no cgo and no library. It never touches the data path: it has no
// queue pairs, sends nothing and receives nothing. A program that has a queue
// pair of its own lets Join attach it and Leave detach it (QueuePair); a
// program that hasn't still holds the membership, and whoever attached to the
// group on that port gets the packets.
//
// A membership lives as long as the open file behind its Channel: when the
// process ends, the kernel leaves every group.
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
// # Errors
//
// Every error of an operation is an *OpError around the kernel's errno, to be
// tested by errors.Is: errors.Is(err, syscall.EADDRNOTAVAIL). The errnos that
// an operation gives are listed at its method. ENOTSUPP (524) is an errno that
// the kernel gives although user space has no name for it.
//
// # Concurrency
//
// Everything is safe for concurrent use. Calls on one ID are carried out one
// after the other.
//
// Package rdmatest has a simulated kernel for tests.
package rdma
