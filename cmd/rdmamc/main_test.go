package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

const podNetNS = "/run/netns/pod"

func newNode(t *testing.T) *rdmatest.Node {
	t.Helper()
	node := rdmatest.NewFabric().AddNode("node")
	node.AddNIC("rxe0", "rdma0", netip.MustParsePrefix("fd00::2/64"), netip.MustParsePrefix("10.0.0.2/24"))
	node.AddPlainInterface("", "eth0", netip.MustParsePrefix("10.9.0.2/24"))
	for _, path := range []string{podNetNS, "/proc/4711/ns/net"} {
		node.AddNetNS(path)
		node.AddMACVLAN(path, "net1", "rdma0", netip.MustParsePrefix("10.0.0.51/24"))
	}
	t.Cleanup(func() {
		if got := node.Memberships(); len(got) > 0 {
			t.Errorf("memberships left over: %+v", got)
		}
		if files, ids, namespaces := node.OpenHandles(); files+ids+namespaces > 0 {
			t.Errorf("left open: %d files, %d ids, %d namespaces", files, ids, namespaces)
		}
	})
	return node
}

// lines passes each write on to whoever waits for it.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// await is the first output of a command, which must not end before.
func await(t *testing.T, shown lines, code chan int) string {
	t.Helper()
	select {
	case text := <-shown:
		return text
	case c := <-code:
		t.Fatalf("ended with %d before it showed anything", c)
	}
	return ""
}

func TestJoinHoldsUntilInterrupted(t *testing.T) {
	group := netip.MustParseAddr("239.1.1.7")
	for _, tt := range []struct {
		name  string
		args  []string
		where rdmatest.Member
		users int
	}{
		{"own namespace", []string{"239.1.1.7", "--interface", "rdma0"}, rdmatest.Member{Interface: "rdma0", Group: group}, 1},
		{"send-only", []string{"--send-only", "--interface=rdma0", "239.1.1.7"}, rdmatest.Member{Interface: "rdma0", Group: group, SendOnly: true}, 0},
		{"namespace by path", []string{"239.1.1.7", "--interface", "net1", "--netns", podNetNS}, rdmatest.Member{NetNS: podNetNS, Interface: "net1", Group: group}, 1},
		{"namespace by process", []string{"239.1.1.7", "--interface", "net1", "--netns", "4711"}, rdmatest.Member{NetNS: "/proc/4711/ns/net", Interface: "net1", Group: group}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := newNode(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			shown, code := make(lines, 1), make(chan int, 1)
			args := append([]string{"join", "-o", "json"}, tt.args...)
			var errs bytes.Buffer
			go func() { code <- run(ctx, args, node.Host(), shown, &errs) }()
			var got membershipJSON
			text := await(t, shown, code)
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v in %q", err, text)
			}
			if got.MGID != "::ffff:239.1.1.7" || got.QKey != 0x01234567 || got.Device != "rxe0" || got.Interface != tt.where.Interface {
				t.Errorf("got %+v", got)
			}
			opts := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			if diff := cmp.Diff([]rdmatest.Member{tt.where}, node.Memberships(), opts); diff != "" {
				t.Errorf("memberships (-want +got):\n%s", diff)
			}
			if users := node.IGMP(tt.where.NetNS, tt.where.Interface)[group]; users != tt.users {
				t.Errorf("got %d users of the group, want %d", users, tt.users)
			}
			cancel()
			if c := <-code; c != 0 {
				t.Errorf("exit code %d: %s", c, errs.String())
			}
			if users := node.IGMP(tt.where.NetNS, tt.where.Interface)[group]; users != 0 {
				t.Errorf("got %d users of the group after the end, want none", users)
			}
		})
	}
}

func TestJoinTable(t *testing.T) {
	node := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	shown, code := make(lines, 1), make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"join", "239.1.1.7", "--interface", "rdma0"}, node.Host(), shown, io.Discard)
	}()
	text := await(t, shown, code)
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
	for _, want := range []string{"GROUP", "239.1.1.7", "FullMember", "rdma0", "rxe0", "::ffff:239.1.1.7", "0x01234567", "::ffff:10.0.0.2"} {
		if !strings.Contains(text, want) {
			t.Errorf("table lacks %q:\n%s", want, text)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		faults []rdmatest.Fault
		code   int
		want   []string // in standard error
	}{
		{"no command", nil, nil, 2, []string{"which command", "rdmamc join"}},
		{"unknown command", []string{"leave"}, nil, 2, []string{`"leave"`}},
		{"unknown flag", []string{"devices", "--color"}, nil, 2, []string{"--color"}},
		{"devices with an argument", []string{"devices", "rxe0"}, nil, 2, []string{"rxe0"}},
		{"unknown output", []string{"devices", "-o", "yaml"}, nil, 2, []string{"yaml", "json"}},
		{"no group", []string{"join", "--interface", "rdma0"}, nil, 2, []string{"one group address"}},
		{"no address", []string{"join", "market-data", "--interface", "rdma0"}, nil, 2, []string{"market-data"}},
		{"unicast", []string{"join", "10.0.0.9", "--interface", "rdma0"}, nil, 2, []string{"10.0.0.9", "multicast"}},
		{"IPv4 as an MGID", []string{"join", "--mgid", "239.1.1.7", "--interface", "rdma0"}, nil, 2, []string{"239.1.1.7", "GID"}},
		{"unicast MGID", []string{"join", "--mgid", "fe80::1", "--interface", "rdma0"}, nil, 2, []string{"fe80::1", "GID"}},
		{"zone", []string{"join", "ff12::7%rdma0", "--interface", "rdma0"}, nil, 2, []string{"zone"}},
		{"IPv4 in IPv6", []string{"join", "::ffff:239.1.1.7", "--interface", "rdma0"}, nil, 2, []string{"IPv4"}},
		{"MGID on RoCE v2", []string{"join", "--mgid", "ff15:a01b::7", "--interface", "rdma0"}, nil, 1, []string{"join MGID ff15:a01b::7 on rdma0", "not supported"}},
		{"watch with an argument", []string{"watch", "rxe0"}, nil, 2, []string{"rxe0"}},
		{"watch no address", []string{"watch", "-g", "market-data"}, nil, 2, []string{"market-data"}},
		{"watch all the time", []string{"watch", "--interval", "0s"}, nil, 2, []string{"--interval"}},
		{"watch an interface for nothing", []string{"watch", "--interface", "rdma0"}, nil, 2, []string{"--interface"}},
		{"watch a missing namespace", []string{"watch", "--netns", "/run/netns/gone"}, nil, 1, []string{"/run/netns/gone"}},
		{"watch on a missing interface", []string{"watch", "-g", "239.1.1.7", "--interface", "rdma9"}, nil, 1, []string{"rdma9"}},
		{"probe with an argument", []string{"probe", "rdma0"}, nil, 2, []string{"rdma0"}},
		{"probe no group", []string{"probe", "--group", "10.0.0.1"}, nil, 2, []string{"10.0.0.1"}},
		{"probe no time", []string{"probe", "--timeout", "0s"}, nil, 2, []string{"--timeout"}},
		{"no interface", []string{"join", "239.1.1.7"}, nil, 2, []string{"--interface is required"}},
		{"unknown port space", []string{"join", "239.1.1.7", "--interface", "rdma0", "--port-space", "TCP"}, nil, 2, []string{"TCP"}},
		{"no time", []string{"join", "239.1.1.7", "--interface", "rdma0", "--timeout", "0s"}, nil, 2, []string{"--timeout"}},
		{"missing interface", []string{"join", "239.1.1.7", "--interface", "rdma9"}, nil, 1, []string{"rdma9 doesn't exist", "rdma0"}},
		{"not RDMA", []string{"join", "239.1.1.7", "--interface", "eth0"}, nil, 1, []string{"eth0 is not RDMA-capable", "rdma0"}},
		{"missing namespace", []string{"join", "239.1.1.7", "--interface", "net1", "--netns", "/run/netns/gone"}, nil, 1, []string{"/run/netns/gone"}},
		{"IPv6 on RoCE v2", []string{"join", "ff0e::1", "--interface", "rdma0"}, nil, 1, []string{"join ff0e::1 on rdma0 (fd00::2)", "not supported"}},
		{"IPoIB on RoCE", []string{"join", "239.1.1.7", "--interface", "rdma0", "--port-space", "IPoIB"}, nil, 1, []string{"bind", "invalid argument"}},
		{
			"join fails",
			[]string{"join", "239.1.1.7", "--interface", "rdma0"},
			[]rdmatest.Fault{{Op: rdmatest.OpJoinEvent, Err: syscall.EAGAIN}},
			1,
			[]string{"join 239.1.1.7 on rdma0 (10.0.0.2)", "temporarily unavailable"},
		},
		{
			"no answer",
			[]string{"join", "239.1.1.7", "--interface", "rdma0", "--timeout", "1ms"},
			[]rdmatest.Fault{{Op: rdmatest.OpJoinEvent, Silent: true}},
			1,
			[]string{"join 239.1.1.7 on rdma0 (10.0.0.2)", "deadline"},
		},
		{
			"leaving fails",
			[]string{"join", "239.1.1.7", "--interface", "rdma0"},
			[]rdmatest.Fault{{Op: rdmatest.OpJoinEvent, Err: syscall.EAGAIN}, {Op: rdmatest.OpLeave, Err: syscall.ENOMEM}},
			1,
			[]string{"join 239.1.1.7", "leave 239.1.1.7", "cannot allocate memory"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := newNode(t)
			for _, f := range tt.faults {
				node.Inject(f)
			}
			var errs bytes.Buffer
			if code := run(t.Context(), tt.args, node.Host(), io.Discard, &errs); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, errs.String())
			}
			for _, want := range tt.want {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, errs.String())
				}
			}
		})
	}
}

func TestLostMembershipEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(*rdmatest.Node)
		want string
	}{
		{"subnet manager", func(n *rdmatest.Node) { n.FailMemberships(netip.MustParseAddr("239.1.1.7"), syscall.ENETRESET) }, "keep membership of 239.1.1.7"},
		{"device", func(n *rdmatest.Node) { n.RemoveDevice("rxe0") }, "device of rdma0 is gone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := newNode(t)
			shown, code := make(lines, 1), make(chan int, 1)
			var errs bytes.Buffer
			go func() {
				code <- run(t.Context(), []string{"join", "239.1.1.7", "--interface", "rdma0", "-o", "json"}, node.Host(), shown, &errs)
			}()
			await(t, shown, code)
			tt.lose(node)
			if c := <-code; c != 1 || !strings.Contains(errs.String(), tt.want) {
				t.Errorf("exit code %d, standard error %q, want 1 and %q", c, errs.String(), tt.want)
			}
		})
	}
}

func TestWithoutModule(t *testing.T) {
	node := newNode(t)
	if err := node.UnloadUCM(); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"join", "239.1.1.7", "--interface", "rdma0"}, node.Host(), io.Discard, &errs); code != 1 || !strings.Contains(errs.String(), "rdma_ucm") {
		t.Errorf("exit code %d, standard error %q, want 1 and the module's name", code, errs.String())
	}
}
