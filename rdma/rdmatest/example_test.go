package rdmatest_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// An InfiniBand node with a pod in a partition of its own, which joins a group
// there; then another subnet manager takes over.
func Example_infiniBand() {
	fabric := rdmatest.NewFabric()
	subnet := fabric.AddSubnet("ib", rdmatest.SubnetOptions{MLIDs: 16})
	subnet.AddPartition(rdmatest.Partition{PKey: 0x8001})
	node := fabric.AddNode("node-1")
	node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"))
	node.SetPKeys("mlx5_0", 0xffff, 0x8001)
	node.AddNetNS("/run/netns/pod")
	node.AddIPoIBChild("/run/netns/pod", "net1", "ib0", 0x8001, netip.MustParsePrefix("10.1.1.7/24"))

	ch, ns, id, err := bindInPod(node.Host(), "/run/netns/pod", netip.MustParseAddr("10.1.1.7"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	defer ns.Close()
	if _, err := id.Join(netip.MustParseAddr("239.1.2.3"), rdma.JoinOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	next := func() rdma.Event {
		e, err := ch.Next(context.Background())
		if err != nil {
			fmt.Println(err)
		}
		return e
	}
	mgid := next().Params.MGID
	fmt.Printf("%v has MLID %#x, members %+v\n", mgid, subnet.MDB()[mgid].MLID, subnet.MDB()[mgid].Members)

	subnet.FailOver(true)
	fmt.Println(next().Err)
	_, joined := subnet.MDB()[mgid]
	fmt.Println("a member still:", joined)
	// Output:
	// ff12:4001:8001::f01:203 has MLID 0xc002, members [{Node:node-1 Device:mlx5_0 Full:true SendOnly:false}]
	// rdma: keep membership of 239.1.2.3 on net1 (10.1.1.7): network dropped connection on reset (ENETRESET)
	// a member still: false
}

func bindInPod(host *rdma.Host, path string, addr netip.Addr) (*rdma.Channel, *rdma.NetNS, *rdma.ID, error) {
	ch, err := host.OpenChannel()
	if err != nil {
		return nil, nil, nil, err
	}
	ns, err := host.OpenNetNS(path)
	if err != nil {
		return ch, nil, nil, err
	}
	id, err := ch.NewID(ns, rdma.PortSpaceUDP)
	if err != nil {
		return ch, ns, nil, err
	}
	return ch, ns, id, id.Bind(addr)
}
