package membership

import (
	"net/netip"
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// An interface that was made anew under its name, with its address, has another
// index and none of the memberships; the kernel tells nothing.
func TestInterfaceMadeAnew(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"))
		e.wantState("a", Joined)
		e.node.DeleteInterface(netns, "net1")
		e.node.AddMACVLAN(netns, "net1", "rdma0", netip.MustParsePrefix("10.0.0.2/24"))
		e.apply(want("a", "239.1.1.7", func(w *Wanted) { w.Index++ }))
		if s := e.wantState("a", Joined); s.Epoch != 2 {
			t.Errorf("epoch = %d, want 2", s.Epoch)
		}
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
		e.wantIDs(1)
	})
}

// A port that full and send-only members share stays a full member until the
// last of them leaves.
func TestSharedPortStaysFullMember(t *testing.T) {
	run(t, func(e *env) {
		holders := func(mode rdma.JoinMode, holders ...string) Wanted {
			return want("a", "239.1.1.7", func(w *Wanted) { w.Mode, w.Holders = mode, holders })
		}
		e.apply(holders(rdma.FullMember, "full", "sender"))
		for range 2 {
			e.apply(holders(rdma.SendOnlyFullMember, "sender"))
			if s := e.wantState("a", Joined); s.Epoch != 1 || s.Mode != rdma.FullMember {
				t.Errorf("epoch %d, mode %v once the full member has left: want 1 and FullMember", s.Epoch, s.Mode)
			}
		}
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
		// What the group's owner has changed is followed.
		e.apply(func() Wanted {
			w := holders(rdma.SendOnlyFullMember, "sender")
			w.Generation++
			return w
		}())
		if s := e.wantState("a", Joined); s.Epoch != 2 || s.Mode != rdma.SendOnlyFullMember {
			t.Errorf("epoch %d, mode %v after the group was edited: want 2 and SendOnlyFullMember", s.Epoch, s.Mode)
		}
		e.wantIGMP(netns, "net1", nil)
	})
}

// A switch forgets a port whose carrier is lost, and the kernel reports nothing
// anew once it is back.
func TestRenew(t *testing.T) {
	run(t, func(e *env) {
		sender := want("s", "239.1.1.9")
		sender.Mode = rdma.SendOnlyFullMember
		receiver := want("a", "239.1.1.7")
		receiver.Mode = rdma.FullMember
		e.apply(receiver, sender)
		before, other := e.wantState("a", Joined), e.wantState("s", Joined)
		e.node.SetPortLink("rxe0", false)
		e.node.SetPortLink("rxe0", true)
		if len(e.fabric.MDB()[groupA]) != 0 {
			t.Fatal("the switch has forgotten nothing: there is nothing to test")
		}
		e.table.Renew(Port{"another", 1})
		e.settle()
		if len(e.fabric.MDB()[groupA]) != 0 {
			t.Error("another port was renewed")
		}
		e.table.Renew(Port{"rxe0", 1})
		e.settle()
		if after := e.wantState("a", Joined); after.Epoch <= before.Epoch || len(e.fabric.MDB()[groupA]) != 1 {
			t.Errorf("epoch %d, then %d; the switch has %v", before.Epoch, after.Epoch, e.fabric.MDB())
		}
		if after := e.wantState("s", Joined); after.Epoch != other.Epoch {
			t.Error("a member that only sends was joined anew")
		}
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
	})
}
