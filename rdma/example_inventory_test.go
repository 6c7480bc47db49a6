package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

func ExampleHost_Interfaces() {
	interfaces, err := roceNode().Host().Interfaces(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, i := range interfaces {
		fmt.Println(i.Name, i.Addrs, "on", i.Device, "port", i.Port, i.LinkLayer)
	}
	// Output:
	// rdma0 [10.0.0.2/24 fd00::2/64] on rxe0 port 1 Ethernet
}

func ExampleHost_LinkNames() {
	node := roceNode()
	node.AddPlainInterface("", "eth0", netip.MustParsePrefix("192.0.2.1/24"))
	names, err := node.Host().LinkNames(nil)
	fmt.Println(names, err)
	// Output:
	// [lo rdma0 eth0] <nil>
}

func ExampleHost_IGMP() {
	host := roceNode().Host()
	ch, id, err := bound(host, "10.0.0.2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	group := netip.MustParseAddr("239.1.1.7")
	if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	users, err := host.IGMP(nil, "rdma0")
	fmt.Println(users[group], err)
	// Output:
	// 1 <nil>
}

func ExampleHost_Devices() {
	node, _ := infiniBandNode()
	node.AddIPoIBChild("", "ib0.8001", "ib0", 0x8001, netip.MustParsePrefix("10.2.0.2/24"))
	devices, err := node.Host().Devices(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range devices {
		for _, p := range d.Ports {
			fmt.Println(d.Name, "port", p.Number, p.LinkLayer, p.State, p.Interfaces)
			fmt.Printf("P_Keys %#x, %d GID\n", p.PKeys, len(p.GIDs))
		}
	}
	// Output:
	// mlx5_0 port 1 InfiniBand Active [ib0 ib0.8001]
	// P_Keys [0xffff], 1 GID
}

// A pod's interface, a macvlan of the node's, is joined on from outside the
// pod. The id keeps the namespace alive: close it when the pod goes.
func ExampleHost_OpenNetNS() {
	node := roceNode()
	node.AddNetNS("/run/netns/pod")
	node.AddMACVLAN("/run/netns/pod", "net1", "rdma0", netip.MustParsePrefix("10.0.0.51/24"))
	host := node.Host()

	ns, err := host.OpenNetNS("/run/netns/pod")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ns.Close()
	interfaces, err := host.Interfaces(ns)
	if err != nil {
		fmt.Println(err)
		return
	}
	ch, err := host.OpenChannel()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	id, err := ch.NewID(ns, rdma.PortSpaceUDP)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := id.Bind(interfaces[0].Addrs[0].Addr()); err != nil {
		fmt.Println(err)
		return
	}
	group := netip.MustParseAddr("239.1.1.7")
	if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	event, err := ch.Next(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(event.Type, "on", interfaces[0].Name, "as", event.Params.GID)
	fmt.Println("users in the pod:", node.IGMP("/run/netns/pod", "net1")[group], "on the node:", node.IGMP("", "rdma0")[group])
	// Output:
	// MulticastJoined on net1 as ::ffff:10.0.0.51
	// users in the pod: 1 on the node: 0
}

// The first listing comes after the watch has begun, so that nothing is missed.
func ExampleHost_WatchInterfaces() {
	node := roceNode()
	host := node.Host()
	watch, err := host.WatchInterfaces(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer watch.Close()
	list := func() {
		interfaces, err := host.Interfaces(nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(len(interfaces), "interfaces")
	}
	list()
	node.DeleteInterface("", "rdma0")
	if _, open := <-watch.Changed(); !open {
		fmt.Println(watch.Err())
		return
	}
	list()
	// Output:
	// 1 interfaces
	// 0 interfaces
}

// Whoever looks at many namespaces watches the links of each, and the devices
// of the host once.
func ExampleHost_WatchLinks() {
	node := roceNode()
	node.AddNetNS("/run/netns/pod")
	host := node.Host()
	ns, err := host.OpenNetNS("/run/netns/pod")
	if err != nil {
		fmt.Println(err)
		return
	}
	watch, err := host.WatchLinks(ns)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer watch.Close() // until then the namespace stays, whatever becomes of ns
	if err := ns.Close(); err != nil {
		fmt.Println(err)
		return
	}
	node.AddMACVLAN("/run/netns/pod", "net1", "rdma0", netip.MustParsePrefix("10.0.0.51/24"))
	_, open := <-watch.Changed()
	fmt.Println("changed:", open)
	// Output:
	// changed: true
}

// A GID's index moves; its value stays. Who has told an index to a program
// looks it up again.
func ExampleHost_WatchDevices() {
	node := roceNode()
	host := node.Host()
	watch, err := host.WatchDevices()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer watch.Close()
	gid := netip.MustParseAddr("::ffff:10.0.0.2")
	find := func() {
		devices, err := host.Devices(nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, g := range devices[0].Ports[0].GIDs {
			if g.GID == gid && g.Type == rdma.RoCEv2 {
				fmt.Println(gid, "is at index", g.Index)
			}
		}
	}
	find()
	node.DeleteAddress("", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
	node.AddAddress("", "rdma0", netip.MustParsePrefix("10.0.0.9/24"))
	node.AddAddress("", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
	<-watch.Changed()
	find()
	// Output:
	// ::ffff:10.0.0.2 is at index 1
	// ::ffff:10.0.0.2 is at index 3
}

func ExampleHost_Probe() {
	node, _ := infiniBandNode()
	node.DeleteInterface("", "ib0")
	problems, err := node.Host().Probe(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range problems {
		fmt.Println(p.Reason, "-", p)
	}
	// Output:
	// NoIPoIB - rdma: mlx5_0 port 1: no IPoIB interface with an address in this network namespace
}

func ExampleHost_SelfTest() {
	node := roceNode()
	scratch := netip.MustParseAddr("239.255.255.254")
	if err := node.Host().SelfTest(context.Background(), nil, "rdma0", scratch); err == nil {
		fmt.Println("multicast works on rdma0")
	}
	if err := node.UnloadUCM(); err != nil {
		fmt.Println(err)
		return
	}
	err := node.Host().SelfTest(context.Background(), nil, "rdma0", scratch)
	var problem *rdma.Problem
	if errors.As(err, &problem) {
		fmt.Println(problem.Reason, problem.Reason.Temporary())
	}
	// Output:
	// multicast works on rdma0
	// NoRDMACM false
}
