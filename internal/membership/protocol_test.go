package membership

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestBeginFailsUntilTheClusterIsBack(t *testing.T) {
	run(t, func(e *env) {
		const begin = "begin default/a uid-a 1"
		e.protocol.set(begin, errAway)
		a := want("a", "239.1.1.7")
		e.apply(a)
		time.Sleep(5 * time.Minute)
		e.settle()
		calls := len(e.protocol.taken())
		if calls < 50 || calls > 100 {
			t.Errorf("%d calls in 5 minutes; want one every %s or so", calls, DefaultProtocolRetryMax)
		}
		e.wantState("a", Waiting)
		e.wantIGMP(netns, "net1", nil)

		e.protocol.set(begin, nil)
		e.apply(a) // something changed: at most FirstRetry after the last attempt
		time.Sleep(DefaultFirstRetry)
		e.settle()
		e.wantState("a", Joined)
		e.wantCalls(begin)
	})
}

func TestNewGenerationIsTriedAtOnce(t *testing.T) {
	run(t, func(e *env) {
		e.protocol.set("begin default/a uid-a 1", ErrGroupGone)
		a := want("a", "239.1.1.7")
		e.apply(a)
		e.wantState("a", Waiting)
		e.protocol.taken()
		a.Generation = 2
		e.apply(a)
		e.wantState("a", Joined)
		e.wantCalls("begin default/a uid-a 2")
	})
}

func TestGroupGone(t *testing.T) {
	run(t, func(e *env) {
		const begin = "begin default/a uid-a 1"
		e.protocol.set(begin, fmt.Errorf("live: %w", ErrGroupGone))
		e.apply(want("a", "239.1.1.7"))
		e.wantState("a", Waiting)
		e.apply()
		e.wantCalls(begin) // and no End: it was taken back
		if held := e.table.Held(); len(held) != 0 {
			t.Errorf("Held = %v", held)
		}
	})
}

func TestBeginThatFailedIsTakenBack(t *testing.T) {
	run(t, func(e *env) {
		const begin = "begin default/a uid-a 1"
		e.protocol.set(begin, errAway)
		e.apply(want("a", "239.1.1.7"))
		e.apply()
		e.wantCalls(begin, "end uid-a, members 0")
	})
}

func TestBeginUnderWayIsCancelled(t *testing.T) {
	run(t, func(e *env) {
		const begin = "begin default/a uid-a 1"
		e.protocol.block(begin)
		e.apply(want("a", "239.1.1.7"))
		e.apply()
		e.wantCalls(begin, "end uid-a, members 0")
	})
}

func TestEndIsTriedUntilItSucceeds(t *testing.T) {
	run(t, func(e *env) {
		const begin, end = "begin default/a uid-a 1", "end uid-a, members 0"
		a := want("a", "239.1.1.7")
		e.apply(a)
		e.wantCalls(begin)
		e.protocol.set(end, errAway)
		e.apply()
		e.wantIGMP(netns, "net1", nil) // the leave doesn't wait for the cluster
		time.Sleep(time.Minute)
		e.settle()
		if calls := e.protocol.taken(); len(calls) < 10 || calls[0] != end {
			t.Errorf("calls %q, want End again and again", calls)
		}
		if held := e.table.Held(); len(held) != 1 {
			t.Errorf("Held = %v, want the group whose End is owed", held)
		}

		e.apply(a) // wanted again: nobody knows whether the entry stands
		e.wantCalls(begin)
		e.wantState("a", Joined)
		e.apply()
		e.protocol.taken()
		e.protocol.set(end, nil)
		time.Sleep(time.Minute)
		e.settle()
		e.wantCalls(end)
		if held := e.table.Held(); len(held) != 0 {
			t.Errorf("Held = %v", held)
		}
	})
}

func TestWantedAgainWhileEnding(t *testing.T) {
	run(t, func(e *env) {
		const begin, end = "begin default/a uid-a 1", "end uid-a, members 0"
		a := want("a", "239.1.1.7")
		e.apply(a)
		release := e.protocol.block(end)
		e.apply()
		e.apply(a)
		e.wantState("a", Waiting)
		e.wantIGMP(netns, "net1", nil)
		release()
		e.settle()
		e.wantState("a", Joined)
		e.wantCalls(begin, end, begin)
	})
}

func TestOneGroupOnTwoInterfacesBeginsOnce(t *testing.T) {
	run(t, func(e *env) {
		a, b := want("a", "239.1.1.7"), want("a", "239.1.1.7", onNode)
		e.apply(a, b)
		e.wantCalls("begin default/a uid-a 1")
		e.apply(b)
		e.wantCalls()
		e.apply()
		e.wantCalls("end uid-a, members 0")
	})
}

func TestAnotherGroupWithTheSameAddress(t *testing.T) {
	run(t, func(e *env) {
		e.apply(want("a", "239.1.1.7"))
		e.protocol.taken()
		// Applied again: the same name and address, another UID.
		again := want("a", "239.1.1.7")
		again.GroupUID = "uid-2"
		release := e.protocol.block("begin default/a uid-2 1")
		e.apply(again)
		e.wantIGMP(netns, "net1", nil) // the old one's, and it is left
		e.wantState("a", Waiting)
		calls := e.protocol.taken()
		if len(calls) != 2 {
			t.Fatalf("calls %q, want the old one's End and the new one's Begin", calls)
		}
		release()
		e.settle()
		if s := e.wantState("a", Joined); s.Epoch != 2 || s.GroupUID != "uid-2" {
			t.Errorf("status = %+v", s)
		}
		e.wantIGMP(netns, "net1", map[netip.Addr]int{groupA: 1})
	})
}
