package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// request is what "rdmamc join" was asked for.
type request struct {
	group     netip.Addr
	mgid      bool // group is a verbatim MGID
	link      string
	netns     string // path; "" this process's
	mode      rdma.JoinMode
	portSpace rdma.PortSpace
	timeout   time.Duration
	output    string
}

func parseJoin(args []string, stderr io.Writer) (request, error) {
	flags := newFlags("join", stderr)
	link := flags.String("interface", "", "the interface to join on (required)")
	mgid := flags.Bool("mgid", false, "ADDR is a verbatim MGID (on InfiniBand)")
	sendOnly := flags.Bool("send-only", false, "join as a send-only full member")
	space := flags.String("port-space", "UDP", "UDP, or IPoIB (on InfiniBand)")
	timeout := flags.Duration("timeout", rdma.DefaultJoinTimeout, "how long the join may take")
	if err := flags.parse(args); err != nil {
		return request{}, err
	}
	if flags.NArg() != 1 {
		return request{}, fmt.Errorf("%w: join takes one group address, got %d", errUsage, flags.NArg())
	}
	group, err := parseGroup(flags.Arg(0), *mgid)
	if err != nil {
		return request{}, err
	}
	r := request{
		group: group, mgid: *mgid, link: *link, netns: namespacePath(*flags.netns), timeout: *timeout, output: *flags.output,
	}
	switch {
	case r.link == "":
		return request{}, fmt.Errorf("%w: --interface is required", errUsage)
	case r.timeout <= 0:
		return request{}, fmt.Errorf("%w: --timeout has to be positive", errUsage)
	}
	if *sendOnly {
		r.mode = rdma.SendOnlyFullMember
	}
	r.portSpace, err = parsePortSpace(*space)
	return r, err
}

func join(ctx context.Context, args []string, host *rdma.Host, stdout, stderr io.Writer) (err error) {
	r, err := parseJoin(args, stderr)
	if err != nil {
		return err
	}
	ch, err := host.OpenChannel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ch.Close()) }()
	id, err := bind(ch, host, r)
	if err != nil {
		return err
	}
	ask, leave := id.Join, id.Leave
	if r.mgid {
		ask, leave = id.JoinMGID, id.LeaveMGID
	}
	if _, err := ask(r.group, rdma.JoinOptions{Mode: r.mode, Timeout: r.timeout}); err != nil {
		return err
	}
	err = hold(ctx, ch, r, stdout, stderr)
	lerr := leave(r.group)
	if errors.Is(lerr, syscall.ENXIO) {
		lerr = nil // the device took the membership with it, which hold has told
	}
	return errors.Join(err, lerr)
}

// bind makes an id on the interface that was asked for.
func bind(ch *rdma.Channel, host *rdma.Host, r request) (id *rdma.ID, err error) {
	ns, err := openNetNS(host, r.netns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeNetNS(ns)) }()
	addr, err := address(host, ns, r)
	if err != nil {
		return nil, err
	}
	if id, err = ch.NewID(ns, r.portSpace); err != nil {
		return nil, err
	}
	return id, id.Bind(addr)
}

// address is the interface's address to bind to.
func address(host *rdma.Host, ns *rdma.NetNS, r request) (netip.Addr, error) {
	interfaces, err := host.Interfaces(ns)
	if err != nil {
		return netip.Addr{}, err
	}
	var names []string
	for _, i := range interfaces {
		if i.Name == r.link {
			return addressFor(i, r.group), nil
		}
		names = append(names, i.Name)
	}
	all, err := host.LinkNames(ns)
	if err != nil {
		return netip.Addr{}, err
	}
	reason := "doesn't exist"
	if slices.Contains(all, r.link) {
		reason = "is not RDMA-capable, or has no address"
	}
	where := "this network namespace"
	if r.netns != "" {
		where = "network namespace " + r.netns
	}
	return netip.Addr{}, fmt.Errorf("interface %s %s; RDMA-capable in %s: %s", r.link, reason, where, orNone(strings.Join(names, ", ")))
}

// addressFor is an interface's address to bind to for a group: one of its
// family if there is one.
func addressFor(i rdma.Interface, group netip.Addr) netip.Addr {
	for _, p := range i.Addrs {
		if p.Addr().Is4() == group.Is4() {
			return p.Addr()
		}
	}
	return i.Addrs[0].Addr()
}

// hold waits for the join, shows it, and then for the end: of ctx, or of the
// membership.
func hold(ctx context.Context, ch *rdma.Channel, r request, stdout, stderr io.Writer) error {
	for {
		e, err := ch.Next(ctx)
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			return err
		}
		switch e.Type {
		case rdma.MulticastJoined:
			if err := show(stdout, r, e.Params); err != nil {
				return err
			}
		case rdma.MulticastError:
			return e.Err
		case rdma.DeviceRemoval:
			return fmt.Errorf("the RDMA device of %s is gone, and the membership with it", r.link)
		case rdma.AddressChange:
			fmt.Fprintf(stderr, "rdmamc: the hardware address of %s has changed\n", r.link)
		}
	}
}

type membershipJSON struct {
	Group        string `json:"group"`
	Mode         string `json:"mode"`
	Interface    string `json:"interface"`
	Device       string `json:"device"`
	Port         int    `json:"port"`
	MGID         string `json:"mgid"`
	MLID         uint16 `json:"mlid"`
	QKey         uint32 `json:"qkey"`
	QPN          uint32 `json:"qpn"`
	PKey         uint16 `json:"pkey"`
	PKeyIndex    int    `json:"pkeyIndex"` // -1: not in the port's table, or not known
	GID          string `json:"gid,omitempty"`
	GIDIndex     int    `json:"gidIndex"`
	GIDType      string `json:"gidType,omitempty"`
	SL           uint8  `json:"sl"`
	HopLimit     uint8  `json:"hopLimit"`
	TrafficClass uint8  `json:"trafficClass"`
	FlowLabel    uint32 `json:"flowLabel"`
}

func show(w io.Writer, r request, p rdma.Params) error {
	m := membershipJSON{
		Group: r.group.String(), Mode: r.mode.String(), Interface: r.link,
		Device: p.Device, Port: p.Port, MGID: p.MGID.String(), MLID: p.MLID, QKey: p.QKey, QPN: p.QPN,
		PKey: p.PKey, PKeyIndex: p.PKeyIndex, GIDIndex: p.GIDIndex, GIDType: string(p.GIDType),
		SL: p.SL, HopLimit: p.HopLimit, TrafficClass: p.TrafficClass, FlowLabel: p.FlowLabel,
	}
	if p.GID.IsValid() {
		m.GID = p.GID.String()
	}
	return write(w, r.output, m, table{
		header: []string{"GROUP", "MODE", "INTERFACE", "DEVICE", "PORT", "MGID", "MLID", "QKEY", "P_KEY", "P_KEY INDEX", "GID", "GID INDEX", "GID TYPE"},
		rows: [][]string{{
			m.Group, m.Mode, m.Interface, m.Device, strconv.Itoa(m.Port), m.MGID, fmt.Sprintf("%#x", m.MLID),
			fmt.Sprintf("%#08x", m.QKey), pkeyText(m.PKey), strconv.Itoa(m.PKeyIndex),
			orNone(m.GID), strconv.Itoa(m.GIDIndex), orNone(m.GIDType),
		}},
	})
}
