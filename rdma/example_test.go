package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// roceNode is a machine with one RoCE v2 device. On a real one, its Host is
// rdma.Local().
func roceNode() *rdmatest.Node {
	node := rdmatest.NewFabric().AddNode("node-1")
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fd00::2/64"))
	return node
}

// infiniBandNode is one with an InfiniBand device.
func infiniBandNode() (*rdmatest.Node, *rdmatest.Subnet) {
	fabric := rdmatest.NewFabric()
	node, subnet := fabric.AddNode("node-1"), fabric.AddSubnet("ib", rdmatest.SubnetOptions{})
	node.AddHCA(subnet, "mlx5_0", "ib0", netip.MustParsePrefix("10.1.0.2/24"), netip.MustParsePrefix("fd01::2/64"))
	return node, subnet
}

// bound gives a channel with an id that is bound to an address.
func bound(host *rdma.Host, addr string) (*rdma.Channel, *rdma.ID, error) {
	ch, err := host.OpenChannel()
	if err != nil {
		return nil, nil, err
	}
	id, err := ch.NewID(nil, rdma.PortSpaceUDP)
	if err == nil {
		err = id.Bind(netip.MustParseAddr(addr))
	}
	if err != nil {
		return nil, nil, errors.Join(err, ch.Close())
	}
	return ch, id, nil
}

// The whole way: open, bind, join, wait for the answer, leave.
func Example() {
	host := roceNode().Host()

	ch, err := host.OpenChannel()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	id, err := ch.NewID(nil, rdma.PortSpaceUDP)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := id.Bind(netip.MustParseAddr("10.0.0.2")); err != nil {
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
	if event.Type == rdma.MulticastError {
		fmt.Println(event.Err)
		return
	}
	p := event.Params
	fmt.Printf("joined %v as %v on %s port %d\n", group, p.MGID, p.Device, p.Port)
	fmt.Printf("Q_Key %#x, GID %v (%s) at index %d, P_Key %#x at index %d\n", p.QKey, p.GID, p.GIDType, p.GIDIndex, p.PKey, p.PKeyIndex)
	fmt.Println("left:", id.Leave(group))
	// Output:
	// joined 239.1.1.7 as ::ffff:239.1.1.7 on rxe0 port 1
	// Q_Key 0x1234567, GID ::ffff:10.0.0.2 (RoCE v2) at index 1, P_Key 0xffff at index 0
	// left: <nil>
}

// A channel serves any number of memberships; one goroutine takes its events.
// A membership that is lost is left and joined again.
func ExampleChannel_Next() {
	node, subnet := infiniBandNode()
	ch, id, err := bound(node.Host(), "10.1.0.2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	if _, err := id.Join(netip.MustParseAddr("239.1.1.7"), rdma.JoinOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		event, err := ch.Next(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		switch event.Type {
		case rdma.MulticastJoined:
			fmt.Printf("joined, MLID %#x\n", event.Params.MLID)
			if subnet != nil {
				subnet.FailOver(true) // the standby takes over, once
				subnet = nil
			}
		case rdma.MulticastError:
			fmt.Println(event.Err)
			m := event.Membership
			if err := id.Leave(m.Group()); err != nil {
				fmt.Println(err)
			}
			if _, err := id.Join(m.Group(), rdma.JoinOptions{Mode: m.Mode()}); err != nil {
				fmt.Println(err) // to be tried again later
			}
		case rdma.DeviceRemoval, rdma.AddressChange:
			fmt.Println(event.Type) // close the id, and make another
		}
	}
	// Output:
	// joined, MLID 0xc001
	// rdma: keep membership of 239.1.1.7 on ib0 (10.1.0.2): network dropped connection on reset (ENETRESET)
	// joined, MLID 0xc001
}

// A sender that doesn't receive spares the network a receiver.
func ExampleID_Join_sendOnly() {
	node := roceNode()
	ch, id, err := bound(node.Host(), "10.0.0.2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	group := netip.MustParseAddr("239.1.1.7")
	if _, err := id.Join(group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember}); err != nil {
		fmt.Println(err)
		return
	}
	event, err := ch.Next(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(event.Type, "as", event.Membership.Mode())
	fmt.Println("receivers by IGMP:", node.IGMP("", "rdma0")[group])
	// Output:
	// MulticastJoined as SendOnlyFullMember
	// receivers by IGMP: 0
}

// IPv6 groups are InfiniBand's; RoCE v2 has none.
func ExampleID_Join_ipv6() {
	group := netip.MustParseAddr("ff0e::1234")
	node, _ := infiniBandNode()
	for _, on := range []struct {
		host *rdma.Host
		addr string
	}{{node.Host(), "fd01::2"}, {roceNode().Host(), "fd00::2"}} {
		ch, id, err := bound(on.host, on.addr)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer ch.Close()
		if _, err := id.Join(group, rdma.JoinOptions{}); err != nil {
			fmt.Println(errors.Is(err, rdma.ENOTSUPP), err)
			continue
		}
		event, err := ch.Next(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("joined as", event.Params.MGID)
	}
	// Output:
	// joined as ff12:6001:ffff::1234
	// true rdma: join ff0e::1234 on rdma0 (fd00::2): not supported by this kind of port (ENOTSUPP 524)
}

// An MGID that others have agreed on, of whatever form, is joined as it is.
func ExampleID_JoinMGID() {
	node, _ := infiniBandNode()
	ch, id, err := bound(node.Host(), "10.1.0.2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	mgid := netip.MustParseAddr("ff15:a01b:0:1::7")
	if _, err := id.JoinMGID(mgid, rdma.JoinOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	event, err := ch.Next(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v %v, P_Key %#x at index %d\n", event.Type, event.Params.MGID, event.Params.PKey, event.Params.PKeyIndex)
	fmt.Println("left:", id.LeaveMGID(mgid))
	// Output:
	// MulticastJoined ff15:a01b:0:1::7, P_Key 0xffff at index 0
	// left: <nil>
}

// attachable stands for a program's UD queue pair, whose methods call
// ibv_attach_mcast and ibv_detach_mcast.
type attachable struct{}

func (attachable) AttachMulticast(mgid netip.Addr, mlid uint16) error {
	fmt.Printf("attach %v, MLID %#x\n", mgid, mlid)
	return nil
}

func (attachable) DetachMulticast(mgid netip.Addr, mlid uint16) error {
	fmt.Printf("detach %v, MLID %#x\n", mgid, mlid)
	return nil
}

// A queue pair is attached when the join has completed, and detached by leaving.
func ExampleQueuePair() {
	node, _ := infiniBandNode()
	ch, id, err := bound(node.Host(), "10.1.0.2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	group := netip.MustParseAddr("239.1.1.7")
	if _, err := id.Join(group, rdma.JoinOptions{QP: attachable{}}); err != nil {
		fmt.Println(err)
		return
	}
	event, err := ch.Next(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(event.Type)
	if err := id.Leave(group); err != nil {
		fmt.Println(err)
	}
	// Output:
	// attach ff12:4001:ffff::f01:107, MLID 0xc001
	// MulticastJoined
	// detach ff12:4001:ffff::f01:107, MLID 0xc001
}

func ExampleMapMGID() {
	group := netip.MustParseAddr("239.1.2.3")
	for _, ps := range []rdma.PortSpace{rdma.PortSpaceUDP, rdma.PortSpaceIPoIB} {
		mgid, ok := rdma.MapMGID(group, ps, 0x8001, 5)
		fmt.Println(mgid, ok)
	}
	// Output:
	// ff15:4001:8001::f01:203 true
	// ff15:401b:8001::f01:203 true
}

func ExampleIsVerbatimMGID() {
	fmt.Println(rdma.IsVerbatimMGID(netip.MustParseAddr("ff15:a01b::7")))
	fmt.Println(rdma.IsVerbatimMGID(netip.MustParseAddr("ff15:601b::7")))
	// Output:
	// true
	// false
}

// errors.Is finds the errno, errors.As what it was about.
func ExampleOpError() {
	ch, id, err := bound(roceNode().Host(), "10.0.0.2")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ch.Close()
	err = id.Leave(netip.MustParseAddr("239.1.1.7"))
	var op *rdma.OpError
	if errors.As(err, &op) {
		fmt.Println(op.Op, op.Group, "on", op.Interface)
	}
	fmt.Println(err)
	// Output:
	// leave 239.1.1.7 on rdma0
	// rdma: leave 239.1.1.7 on rdma0 (10.0.0.2): not joined on this id: cannot assign requested address (EADDRNOTAVAIL)
}
