package rdma

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/internal/sys"
)

var scratch, beside = netip.MustParseAddr("239.255.255.254"), netip.MustParseAddr("239.255.255.255")

// onRoCE is a kernel on which all is well. Somebody uses the scratch group
// already, and is to keep it.
func onRoCE() *scripted {
	s := newScripted()
	s.links = net1()
	s.igmp[scratch] = 2
	s.answer = func(uid uint64, group netip.Addr) *sys.Event {
		return &sys.Event{UID: uid, Type: sys.EventMulticastJoin, UD: sys.UDParam{MGID: group.As16(), Port: 1}}
	}
	return s
}

// selfTest runs the self-test with little patience.
func runSelfTest(ctx context.Context, s *scripted) error {
	t := &selfTest{host: NewHost(s), link: Interface{Name: "net1"}, patience: 20 * time.Millisecond}
	return t.result(t.run(ctx, scratch))
}

func TestSelfTestOnRoCE(t *testing.T) {
	s := onRoCE()
	before := maps.Clone(s.igmp)
	if err := NewHost(s).SelfTest(t.Context(), nil, "net1", scratch); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"join 239.255.255.254 SendOnlyFullMember as 3", "leave 3",
		"join 239.255.255.255 FullMember as 4", "join 239.255.255.254 FullMember as 5",
		"leave 5", "leave 4",
	}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	maps.DeleteFunc(s.igmp, func(_ netip.Addr, users int) bool { return users == 0 })
	if diff := cmp.Diff(before, s.igmp, compareAddrs()); diff != "" {
		t.Errorf("IGMP (-before +after):\n%s", diff)
	}
}

// On InfiniBand there is no IGMP to look at, and no send-only member, since
// mixing join states of one group has leaked MLIDs in subnet managers.
func TestSelfTestOnInfiniBand(t *testing.T) {
	s := onInfiniBand()
	s.links, s.igmpErr = net1(), syscall.ENOENT
	if err := NewHost(s).SelfTest(t.Context(), nil, "net1", scratch); err != nil {
		t.Fatal(err)
	}
	want := []string{"join 239.255.255.255 FullMember as 3", "join 239.255.255.254 FullMember as 4", "leave 4", "leave 3"}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestSelfTestFindsOut(t *testing.T) {
	none := func(map[netip.Addr]int, netip.Addr) {}
	failed := func(errno syscall.Errno) func(uint64, netip.Addr) *sys.Event {
		return func(uid uint64, _ netip.Addr) *sys.Event {
			return &sys.Event{UID: uid, Type: sys.EventMulticastError, Status: -int32(errno)}
		}
	}
	for _, tt := range []struct {
		name   string
		setup  func(*scripted)
		reason Reason
		want   string // in the text
	}{
		{"no rdma_cm", func(s *scripted) { s.openErr = syscall.ENOENT }, ReasonNoRDMACM, "rdma_ucm"},
		{"not permitted", func(s *scripted) { s.openErr = syscall.EACCES }, ReasonSelfTestFailed, "permission denied"},
		{"no such interface", func(s *scripted) { s.links[0].Name = "net2" }, ReasonNoInterface, "net1"},
		{"an interface that isn't RDMA", func(s *scripted) { s.bindErr = syscall.ENODEV }, ReasonNoInterface, "net1"},
		{"iWARP", func(s *scripted) { s.joinErr = syscall.ENOSYS }, ReasonIWARP, "iWARP"},
		{"RoCE v1", func(s *scripted) {
			s.answer = func(uid uint64, _ netip.Addr) *sys.Event {
				return &sys.Event{UID: uid, Type: sys.EventMulticastJoin, UD: sys.UDParam{MGID: netip.MustParseAddr("ff0e::ffff:efff:fffe").As16(), Port: 1}}
			}
		}, ReasonRoCEv1, "ff0e::ffff:efff:fffe"},
		{"IPoIB isn't up", func(s *scripted) { s.joinErr = syscall.EADDRNOTAVAIL }, ReasonNotReady, "cannot assign"},
		{"no way to the subnet manager", func(s *scripted) { s.answer = failed(syscall.EAGAIN) }, ReasonNotReady, "temporarily unavailable"},
		{"the subnet manager doesn't answer", func(s *scripted) { s.answer = failed(syscall.ETIMEDOUT) }, ReasonNoAnswer, "timed out"},
		{"the subnet manager refuses", func(s *scripted) { s.answer = failed(syscall.EINVAL) }, ReasonSelfTestFailed, "invalid argument"},
		{"leaving fails", func(s *scripted) { s.leaveErr = syscall.ENOMEM }, ReasonSelfTestFailed, "leave 239.255.255.254"},
		{"IGMP can't be read", func(s *scripted) { s.igmpErr = syscall.EIO }, ReasonSelfTestFailed, "IGMP"},
		{"joining joins nothing", func(s *scripted) { s.joinIGMP = none }, ReasonSelfTestFailed, "2 users of 239.255.255.254 in the IGMP table, want 3"},
		{"leaving leaves nothing", func(s *scripted) { s.leaveIGMP = none }, ReasonWrongGroupLeft, "3 users of 239.255.255.254 in the IGMP table, want 2"},
		{"leaving leaves the newest", func(s *scripted) {
			s.leaveIGMP = func(users map[netip.Addr]int, _ netip.Addr) { users[beside]-- }
		}, ReasonWrongGroupLeft, "3 users of 239.255.255.254"},
		{"leaving leaves both", func(s *scripted) {
			s.leaveIGMP = func(users map[netip.Addr]int, _ netip.Addr) { users[scratch]--; users[beside]-- }
		}, ReasonWrongGroupLeft, "0 users of 239.255.255.255 in the IGMP table, want 1"},
		{"only the last leave goes wrong", func(s *scripted) {
			s.leaveIGMP = func(users map[netip.Addr]int, group netip.Addr) {
				if group == scratch {
					users[group]--
				}
			}
		}, ReasonWrongGroupLeft, "1 users of 239.255.255.255 in the IGMP table, want 0"},
		{"the device goes", func(s *scripted) {
			s.answer = func(uint64, netip.Addr) *sys.Event {
				return &sys.Event{UID: s.uid(1), Type: sys.EventDeviceRemoval}
			}
		}, ReasonSelfTestFailed, "no such device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := onRoCE()
			tt.setup(s)
			err := runSelfTest(t.Context(), s)
			var p *Problem
			if !errors.As(err, &p) || p.Reason != tt.reason || p.Interface != "net1" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v (%+v), want %s with %q", err, p, tt.reason, tt.want)
			}
		})
	}
}

func TestSelfTestJoinsNoFullMemberOnRoCEv1(t *testing.T) {
	s := onRoCE()
	s.answer = func(uid uint64, _ netip.Addr) *sys.Event {
		return &sys.Event{UID: uid, Type: sys.EventMulticastJoin, UD: sys.UDParam{MGID: netip.MustParseAddr("ff0e::ffff:efff:fffe").As16()}}
	}
	if err := runSelfTest(t.Context(), s); err == nil {
		t.Error("no error")
	}
	want := []string{"join 239.255.255.254 SendOnlyFullMember as 3", "leave 3"}
	if diff := cmp.Diff(want, s.took()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestSelfTestNamesThePort(t *testing.T) {
	s := onRoCE()
	s.joinErr = syscall.ENOSYS
	var p *Problem
	if err := NewHost(s).SelfTest(t.Context(), nil, "net1", scratch); !errors.As(err, &p) || p.Device != "mlx5_0" || p.Port != 1 {
		t.Errorf("got error %v (%+v), want one of mlx5_0 port 1", err, p)
	}
}

func TestSelfTestRefusesWhatIsNoGroup(t *testing.T) {
	s := onRoCE()
	for _, group := range []netip.Addr{{}, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("ff02::1%net1")} {
		if err := NewHost(s).SelfTest(t.Context(), nil, "net1", group); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: got error %v, want EINVAL", group, err)
		}
	}
	if s.took() != nil {
		t.Errorf("joined: %v", s.took())
	}
}

// Whenever the caller gives up, the test ends, and not with an accusation.
func TestSelfTestEndsWithItsContext(t *testing.T) {
	for _, tt := range []struct {
		name   string
		setup  func(*scripted, context.CancelFunc)
		reason Reason
	}{
		{"waiting for an answer", func(s *scripted, cancel context.CancelFunc) {
			s.answer = func(uint64, netip.Addr) *sys.Event {
				cancel()
				return nil
			}
		}, ReasonSelfTestFailed},
		{"looking", func(s *scripted, cancel context.CancelFunc) {
			s.leaveIGMP = func(map[netip.Addr]int, netip.Addr) { cancel() }
		}, ReasonSelfTestFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := onRoCE()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tt.setup(s, cancel)
			var p *Problem
			if err := NewHost(s).SelfTest(ctx, nil, "net1", scratch); !errors.Is(err, context.Canceled) || !errors.As(err, &p) || p.Reason != tt.reason {
				t.Errorf("got error %v (%+v), want a cancelled context and %s", err, p, tt.reason)
			}
		})
	}
	s := onRoCE()
	s.answer = func(uint64, netip.Addr) *sys.Event { return nil }
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var p *Problem
	if err := NewHost(s).SelfTest(ctx, nil, "net1", scratch); !errors.As(err, &p) || p.Reason != ReasonNoAnswer {
		t.Errorf("past its deadline: got error %v, want %s", err, ReasonNoAnswer)
	}
}
