package conformance

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// leaving has the sentences of rdma_leave_multicast(3) on what leaving does.
func leaving() []Scenario {
	group := netip.MustParseAddr("239.1.1.7")
	mgid := netip.MustParseAddr("::ffff:239.1.1.7")
	return []Scenario{
		{"leaving leaves the group", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			Join(t, ch, id, group, rdma.JoinOptions{})
			wantIGMP(t, m, "", link0, group, 1)
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 0)
			nothingMore(t, ch)
		}},
		{"leaving detaches the queue pair with the join event's MGID and MLID", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			qp := &queuePair{}
			Join(t, ch, id, group, rdma.JoinOptions{QP: qp})
			qp.want(t, call{"attach", mgid, 0})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			qp.want(t, call{"attach", mgid, 0}, call{"detach", mgid, 0})
		}},
		{"a send-only member's queue pair is neither attached nor detached", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			qp := &queuePair{}
			Join(t, ch, id, group, rdma.JoinOptions{QP: qp, Mode: rdma.SendOnlyFullMember})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			qp.want(t)
		}},
		{"an error of detaching is returned, and the group is left all the same", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			broken := errors.New("broken queue pair")
			Join(t, ch, id, group, rdma.JoinOptions{QP: &queuePair{detachErr: broken}})
			err := id.Leave(group)
			var op *rdma.OpError
			if !errors.Is(err, broken) || !errors.As(err, &op) || op.Op != "detach" || op.Group != group || op.Interface != link0 {
				t.Errorf("got error %v (%+v), want the queue pair's, of detaching %v on %s", err, op, group, link0)
			}
			wantIGMP(t, m, "", link0, group, 0)
			wantErrno(t, id.Leave(group), syscall.EADDRNOTAVAIL)
		}},
		{"an error of attaching is told by the event, and the group is there to be left", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			broken := errors.New("broken queue pair")
			qp := &queuePair{attachErr: broken}
			membership := request(t, id, group, rdma.JoinOptions{QP: qp})
			e := Next(t, ch)
			if e.Type != rdma.MulticastError || e.Membership != membership || !errors.Is(e.Err, broken) {
				t.Errorf("got event %+v, want MulticastError with the queue pair's error", e)
			}
			wantIGMP(t, m, "", link0, group, 1)
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 0)
			qp.want(t, call{"attach", mgid, 0})
		}},
		{"leaving a group that isn't joined gives EADDRNOTAVAIL", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			wantErrno(t, id.Leave(group), syscall.EADDRNOTAVAIL, "leave", group.String(), link0)
			Join(t, ch, id, group, rdma.JoinOptions{})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantErrno(t, id.Leave(group), syscall.EADDRNOTAVAIL, "leave", group.String(), link0)
		}},
		{"leaving one group leaves the id's others joined", func(t *testing.T, m Machine) {
			other := netip.MustParseAddr("239.1.1.8")
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			Join(t, ch, id, group, rdma.JoinOptions{})
			Join(t, ch, id, other, rdma.JoinOptions{})
			if err := id.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 0)
			wantIGMP(t, m, "", link0, other, 1)
		}},
		{"a group joined on two ids is left by the last", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			one, two := Bind(t, ch, addr0()), Bind(t, ch, addr0())
			Join(t, ch, one, group, rdma.JoinOptions{})
			Join(t, ch, two, group, rdma.JoinOptions{})
			wantIGMP(t, m, "", link0, group, 2)
			if err := one.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 1)
			if err := two.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 0)
		}},
		{"a group that was left can be joined again", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			id := Bind(t, ch, addr0())
			for range 3 {
				Join(t, ch, id, group, rdma.JoinOptions{})
				wantIGMP(t, m, "", link0, group, 1)
				if err := id.Leave(group); err != nil {
					t.Fatal(err)
				}
				wantIGMP(t, m, "", link0, group, 0)
			}
		}},
		{"a send-only member's leave takes no other member's IGMP membership", func(t *testing.T, m Machine) {
			ch := OpenChannel(t, m)
			receiver, sender := Bind(t, ch, addr0()), Bind(t, ch, addr0())
			Join(t, ch, receiver, group, rdma.JoinOptions{})
			Join(t, ch, sender, group, rdma.JoinOptions{Mode: rdma.SendOnlyFullMember})
			wantIGMP(t, m, "", link0, group, 1)
			if err := sender.Leave(group); err != nil {
				t.Fatal(err)
			}
			wantIGMP(t, m, "", link0, group, 1)
		}},
	}
}
