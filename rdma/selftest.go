package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// SelfTest tries multicast out on an interface of a network namespace (nil: the
// calling process's): it joins a scratch group that nothing else there uses,
// looks, leaves it, and looks again. A second group, whose address differs from
// the first one's in the lowest bit, is held meanwhile, so that a kernel which
// leaves the wrong one is found out. On RoCE it looks at the users of the groups
// in /proc/net/igmp, so that two tests at one time on one interface need groups
// of their own; on InfiniBand, where no such table exists, at what joining and
// leaving answer. An IPv4 group is right on both.
//
// nil: it works. Every error is a *Problem, for the same interface, with one of
// the reasons NoRDMACM, NoInterface, IWARP, RoCEv1, NotReady, NoAnswer,
// WrongGroupLeft, and SelfTestFailed for everything else. RoCE v1 is found out
// by a send-only join, before a full one can do harm.
//
// It ends soon after ctx does; each of its joins has DefaultJoinTimeout.
// Whatever happens, it leaves what it joined and closes what it opened. What a
// kernel with WrongGroupLeft hasn't left stays until the interface goes.
func (h *Host) SelfTest(ctx context.Context, ns *NetNS, iface string, group netip.Addr) error {
	t := &selfTest{host: h, ns: ns, link: Interface{Name: iface}, patience: igmpPatience}
	return t.result(t.run(ctx, group))
}

// result makes an error a problem.
func (t *selfTest) result(err error) error {
	if err == nil {
		return nil
	}
	return &Problem{
		Reason: selfTestReason(err),
		Device: t.link.Device, Port: t.link.Port, Interface: t.link.Name,
		Err: err,
	}
}

// igmpPatience is how long the kernel's IGMP table may take to follow a join or
// leave. Kernels that are known change it within the call.
const igmpPatience = time.Second

type selfTest struct {
	host     *Host
	ns       *NetNS
	link     Interface
	patience time.Duration

	channel *Channel
	id      *ID
	groups  [2]netip.Addr // the one that is left, and the one that is held meanwhile
	before  map[netip.Addr]int
}

// reasonError is an error whose reason is known where it is made.
type reasonError struct {
	reason Reason
	error
}

func (e reasonError) Unwrap() error { return e.error }

// selfTestReason is the word for an error.
func selfTestReason(err error) Reason {
	var known reasonError
	switch {
	case errors.As(err, &known):
		return known.reason
	case errors.Is(err, ErrUnavailable):
		return ReasonNoRDMACM
	case errors.Is(err, syscall.ENOSYS):
		return ReasonIWARP
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.ENETRESET):
		return ReasonNotReady
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, context.DeadlineExceeded):
		return ReasonNoAnswer
	}
	return ReasonSelfTestFailed
}

func (t *selfTest) run(ctx context.Context, group netip.Addr) (err error) {
	if !isGroup(group) {
		return &OpError{Op: "join", Group: group, Err: &refusal{notAGroup, syscall.EINVAL}}
	}
	t.groups = [2]netip.Addr{group, neighbour(group)}
	if err := t.find(); err != nil {
		return err
	}
	if t.channel, err = t.host.OpenChannel(); err != nil {
		return err
	}
	// Closing leaves what is still joined.
	defer func() { err = errors.Join(err, t.channel.Close()) }()
	if t.id, err = t.channel.NewID(t.ns, PortSpaceUDP); err != nil {
		return err
	}
	if err := t.id.Bind(t.link.Addrs[0].Addr()); err != nil {
		return err
	}
	if t.link.LinkLayer == LinkLayerInfiniBand {
		return t.joinAndLeave(ctx, func(context.Context, [2]int, Reason) error { return nil })
	}
	if err := t.refuseRoCEv1(ctx); err != nil {
		return err
	}
	if t.before, err = t.host.IGMP(t.ns, t.link.Name); err != nil {
		return err
	}
	return t.joinAndLeave(ctx, t.look)
}

// neighbour is the address that differs in the lowest bit.
func neighbour(group netip.Addr) netip.Addr {
	b := group.AsSlice()
	b[len(b)-1] ^= 1
	other, _ := netip.AddrFromSlice(b)
	return other
}

// find looks the interface up.
func (t *selfTest) find() error {
	interfaces, err := t.host.Interfaces(t.ns)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(interfaces, func(i Interface) bool { return i.Name == t.link.Name })
	if i < 0 {
		return reasonError{ReasonNoInterface, fmt.Errorf("no RDMA-capable interface %s", t.link.Name)}
	}
	t.link = interfaces[i]
	return nil
}

// refuseRoCEv1 asks with a send-only join, which touches no IGMP, what rdma_cm
// uses on the port: besides what the port can do, an administrator's choice
// (configfs, default_roce_mode).
func (t *selfTest) refuseRoCEv1(ctx context.Context) error {
	params, err := t.join(ctx, t.groups[0], SendOnlyFullMember)
	if err != nil {
		return err
	}
	if err := t.id.Leave(t.groups[0]); err != nil {
		return err
	}
	if params.GIDType == RoCEv1 {
		return reasonError{ReasonRoCEv1, fmt.Errorf("rdma_cm joins as %v", params.MGID)}
	}
	return nil
}

// joinAndLeave joins and leaves, and looks after each step; look is told how
// many users each group has to have more than before, and the reason if not.
func (t *selfTest) joinAndLeave(ctx context.Context, look func(context.Context, [2]int, Reason) error) error {
	for _, group := range []netip.Addr{t.groups[1], t.groups[0]} {
		if _, err := t.join(ctx, group, FullMember); err != nil {
			return err
		}
	}
	if err := look(ctx, [2]int{1, 1}, ReasonSelfTestFailed); err != nil {
		return err
	}
	if err := t.id.Leave(t.groups[0]); err != nil {
		return err
	}
	if err := look(ctx, [2]int{0, 1}, ReasonWrongGroupLeft); err != nil {
		return err
	}
	if err := t.id.Leave(t.groups[1]); err != nil {
		return err
	}
	return look(ctx, [2]int{0, 0}, ReasonWrongGroupLeft)
}

// join joins and waits for the answer.
func (t *selfTest) join(ctx context.Context, group netip.Addr, mode JoinMode) (Params, error) {
	m, err := t.id.Join(group, JoinOptions{Mode: mode})
	if err != nil {
		return Params{}, err
	}
	for {
		e, err := t.channel.Next(ctx)
		switch {
		case err != nil:
			return Params{}, fmt.Errorf("waiting for the answer to joining %v: %w", group, err)
		case e.Type == DeviceRemoval:
			return Params{}, &OpError{Op: "join", Group: group, Interface: t.link.Name, Err: syscall.ENXIO}
		case e.Type == MulticastError:
			return Params{}, e.Err
		case e.Type == MulticastJoined && e.Membership == m:
			return e.Params, nil
		}
	}
}

// look waits until the groups have so many users more than before.
func (t *selfTest) look(ctx context.Context, more [2]int, otherwise Reason) error {
	over := time.After(t.patience)
	for {
		users, err := t.host.IGMP(t.ns, t.link.Name)
		if err != nil {
			return err
		}
		wrong := t.compare(users, more)
		if wrong == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return reasonError{otherwise, wrong}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (t *selfTest) compare(users map[netip.Addr]int, more [2]int) error {
	for i, group := range t.groups {
		if want := t.before[group] + more[i]; users[group] != want {
			return fmt.Errorf("%d users of %v in the IGMP table, want %d", users[group], group, want)
		}
	}
	return nil
}
