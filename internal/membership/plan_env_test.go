package membership

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// group returns one that is accepted; change says what is different.
func testGroup(name string, change ...func(*Group)) Group {
	g := Group{
		UID: "uid-" + name, Namespace: "default", Name: name, Generation: 1,
		Address: netip.MustParseAddr("239.1.1.7"), PortSpace: rdma.PortSpaceUDP, Accepted: true,
	}
	for _, c := range change {
		c(&g)
	}
	return g
}

func at(address string) func(*Group) {
	return func(g *Group) { g.Address = netip.MustParseAddr(address) }
}

func verbatim(mgid string) func(*Group) {
	return func(g *Group) { g.Address, g.Verbatim = netip.MustParseAddr(mgid), true }
}

// pod has a namespace of its own; its sandbox is s-NAME.
func pod(name string, requests ...Request) Pod {
	return Pod{UID: "uid-" + name, Namespace: "default", Name: name, SandboxID: "s-" + name, NetNS: "/run/netns/" + name, Requests: requests}
}

func hostPod(name string, requests ...Request) Pod {
	p := pod(name, requests...)
	p.NetNS = ""
	return p
}

func ask(name string, change ...func(*Request)) Request {
	r := Request{Namespace: "default", Name: name, Required: true}
	for _, c := range change {
		c(&r)
	}
	return r
}

func on(iface string) func(*Request) { return func(r *Request) { r.Interface = iface } }

func as(mode rdma.JoinMode) func(*Request) { return func(r *Request) { r.Mode = &mode } }

func roce(name, device string, addrs ...string) rdma.Interface {
	i := rdma.Interface{Name: name, Device: device, Port: 1, LinkLayer: rdma.LinkLayerEthernet}
	for _, a := range addrs {
		i.Addrs = append(i.Addrs, netip.MustParsePrefix(a))
	}
	return i
}

func ib(name, device string, addrs ...string) rdma.Interface {
	i := roce(name, device, addrs...)
	i.LinkLayer = rdma.LinkLayerInfiniBand
	return i
}

// ifaces lists RDMA interfaces, and links that aren't by name.
func ifaces(of ...any) Interfaces {
	i := Interfaces{Links: []string{"lo"}}
	for _, x := range of {
		switch x := x.(type) {
		case rdma.Interface:
			i.RDMA = append(i.RDMA, x)
			i.Links = append(i.Links, x.Name)
		case string:
			i.Links = append(i.Links, x)
		}
	}
	return i
}

// show puts a plan into lines: what a reader has to compare.
func show(wanted []Wanted, verdicts []Verdict) []string {
	var out []string
	for _, w := range wanted {
		out = append(out, fmt.Sprintf("want %s/%s %s %s on %q %s/%d (%s): %s", w.GroupNamespace, w.GroupName, w.Address, w.Mode,
			w.Scope, w.Interface, w.Port, w.BindAddr, strings.Join(w.Holders, " ")))
	}
	for _, v := range verdicts {
		out = append(out, fmt.Sprintf("%s %s: %s/%s@%s %s", v.State, v.Holder, v.GroupNamespace, v.GroupName, v.Interface, v.Reason))
	}
	return out
}
