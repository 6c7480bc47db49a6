//go:build opensm

package opensm

import (
	"syscall"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// portGone pulls a node's cable: its memberships go, and the group of which it
// was the last full member.
func portGone(p *play) {
	alone, shared := udp(1), udp(2)
	p.accepted(p.set("c", alone, sa.FullMember))
	p.accepted(p.set("b", alone, sa.SendOnlyNonMember))
	p.accepted(p.set("a", shared, sa.FullMember))
	p.accepted(p.set("c", shared, sa.FullMember))

	p.console(p.t, `Unlink "c"`)
	p.sweepUntil("c is gone", func() bool { return !p.isPort("c") })
	port := p.ports["c"]
	p.simulated.RemovePort(port.GUID)
	p.members("a", alone)
	p.members("a", shared)
	p.refused(p.ask("a", "set", p.request("c", shared, sa.FullMember)), sa.StatusRequestInvalid, "")

	p.console(p.t, `ReLink "c"`)
	p.sweepUntil("c is back", func() bool { return p.isPort("c") })
	p.simulated.SetPort(port)
	p.members("a", shared) // not as a member
	p.accepted(p.set("c", shared, sa.FullMember))
	p.members("a", shared)
}

// isPort asks OpenSM for what it refuses anyway: with too few components where
// it knows the port, as invalid where it doesn't.
func (p *play) isPort(node string) bool {
	p.t.Helper()
	r := p.request(node, udp(999), sa.FullMember, only)
	a, err := p.clients["a"].ask("set", r)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = p.code(p.t) // not of a request that is compared
	return a.Status == sa.StatusInsufficientComponents
}

// sweepUntil has OpenSM look at the subnet until the condition holds, and once
// more: what it found then is set up too.
func (p *play) sweepUntil(what string, condition func() bool) {
	p.t.Helper()
	until(p.t, what, func() bool {
		p.sweep()
		return condition()
	})
	p.sweep()
}

// sweep returns when OpenSM has been through the subnet.
func (p *play) sweep() {
	p.t.Helper()
	before := p.sweeps(p.t)
	if err := p.opensm.Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
	until(p.t, "through another sweep", func() bool { return p.sweeps(p.t) > before })
}

// lostMLID is OpenSM's miscounting of a port that is both kinds of full member
// and leaves as one of them: nobody can free the group's MLID any more.
func lostMLID(p *play) {
	g := udp(1)
	lost := p.accepted(p.set("a", g, sa.FullMember|sa.SendOnlyFullMember)).MLID
	p.accepted(p.delete("a", g, sa.FullMember))
	if left := p.members("a", g); len(left) != 0 {
		p.t.Errorf("members %v", left)
	}
	p.refused(p.delete("a", g, sa.SendOnlyFullMember), sa.StatusRequestInvalid, "1B25")
	if other := p.accepted(p.set("a", udp(2), sa.FullMember)).MLID; other == lost {
		p.t.Errorf("MLID %#x isn't lost", lost)
	}
	p.accepted(p.set("b", g, sa.FullMember, only))
	p.accepted(p.delete("b", g, sa.FullMember))
	p.members("a", g)
}

// restart begins with what lostMLID left, and members of groups: all is lost.
func restart(p *play) {
	p.accepted(p.set("a", udp(1), sa.FullMember))
	first := p.accepted(p.set("a", udp(3), sa.FullMember))
	stop(p.opensm)
	p.startOpenSM(p.t)
	p.simulated.Restart()
	for _, n := range []int{1, 3} {
		p.members("a", udp(n))
	}
	p.refused(p.delete("a", udp(3), sa.FullMember), sa.StatusRequestInvalid, "")
	again := p.accepted(p.set("a", udp(3), sa.FullMember))
	if again.MLID == first.MLID {
		p.t.Errorf("MLID %#x as before", again.MLID)
	}
	p.accepted(p.set("b", udp(3), sa.FullMember, only))
}
