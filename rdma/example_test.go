package rdma_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

func Example() {
	// rdma.Local() on a machine with RDMA.
	node := rdmatest.NewFabric().AddNode("node-1")
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))

	if err := joinAndLeave(node.Host(), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("239.1.1.7")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// joined 239.1.1.7 as ::ffff:239.1.1.7 on rxe0
	// left
}

func joinAndLeave(host *rdma.Host, addr, group netip.Addr) error {
	ch, err := host.OpenChannel()
	if err != nil {
		return err
	}
	defer ch.Close()
	id, err := ch.NewID(nil, rdma.PortSpaceUDP)
	if err != nil {
		return err
	}
	if err := id.Bind(addr); err != nil {
		return err
	}
	if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
		return err
	}
	event, err := ch.Next(context.Background())
	if err != nil {
		return err
	}
	if event.Type == rdma.MulticastError {
		return event.Err
	}
	fmt.Println("joined", event.Membership.Group(), "as", event.Params.MGID, "on", event.Params.Device)
	if err := id.Leave(group); err != nil {
		return err
	}
	fmt.Println("left")
	return nil
}
