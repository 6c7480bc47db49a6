package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
	"github.com/spf13/pflag"
)

func TestJoinOnInfiniBand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		args  []string
		where rdmatest.Member
		mgid  string
		pkey  uint16
		index int
	}{
		{
			"IPv6", []string{"ff0e::1234", "--interface", "ib0"},
			rdmatest.Member{Interface: "ib0", Group: netip.MustParseAddr("ff0e::1234")}, "ff12:6001:ffff::1234", 0xffff, 0,
		},
		{
			"verbatim MGID", []string{"--mgid", "ff15:a01b:0:1::7", "--interface", "ib0"},
			rdmatest.Member{Interface: "ib0", Group: netip.MustParseAddr("ff15:a01b:0:1::7"), Verbatim: true}, "ff15:a01b:0:1::7", 0xffff, 0,
		},
		{
			"another partition", []string{"239.1.1.7", "--interface", "ib0.8001"},
			rdmatest.Member{Interface: "ib0.8001", Group: netip.MustParseAddr("239.1.1.7")}, "ff12:4001:8001::f01:107", 0x8001, 2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node, _ := newInfiniBandNode(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			shown, code := make(lines, 1), make(chan int, 1)
			var errs bytes.Buffer
			go func() {
				code <- run(ctx, append([]string{"join", "-o", "json"}, tt.args...), node.Host(), shown, &errs)
			}()
			var got membershipJSON
			if err := json.Unmarshal([]byte(await(t, shown, code)), &got); err != nil {
				t.Fatal(err)
			}
			if got.MGID != tt.mgid || got.MLID < 0xc000 || got.PKey != tt.pkey || got.PKeyIndex != tt.index || !strings.HasPrefix(got.GID, "fe80::") {
				t.Errorf("got %+v", got)
			}
			opts := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			if diff := cmp.Diff([]rdmatest.Member{tt.where}, node.Memberships(), opts); diff != "" {
				t.Errorf("memberships (-want +got):\n%s", diff)
			}
			cancel()
			if c := <-code; c != 0 {
				t.Errorf("exit code %d: %s", c, errs.String())
			}
		})
	}
}

// What is parsed is refused with an error of usage, or is what can be asked for.
func FuzzJoinArguments(f *testing.F) {
	f.Add("239.1.1.7 --interface rdma0")
	f.Add("--mgid ff15:a01b::7 --interface ib0 --netns 4711 -o json --timeout 3s")
	f.Add("ff0e::1%eth0 --interface x --port-space ipoib --send-only")
	f.Add("::ffff:239.1.1.7 --interface")
	f.Fuzz(func(t *testing.T, line string) {
		r, err := parseJoin(strings.Fields(line), io.Discard)
		if err != nil {
			if !errors.Is(err, errUsage) && !errors.Is(err, pflag.ErrHelp) {
				t.Errorf("%q: error %v isn't one of usage", line, err)
			}
			return
		}
		if !r.group.IsMulticast() || r.group.Is4In6() || r.group.Zone() != "" || r.mgid && !r.group.Is6() {
			t.Errorf("%q: group %v, MGID %v", line, r.group, r.mgid)
		}
		if r.link == "" || r.timeout <= 0 || r.output != "table" && r.output != "json" ||
			r.portSpace != rdma.PortSpaceUDP && r.portSpace != rdma.PortSpaceIPoIB {
			t.Errorf("%q: got %+v", line, r)
		}
	})
}

func FuzzWatchArguments(f *testing.F) {
	f.Add("-g 239.1.1.7,239.1.1.8 --mgid ff15:a01b::7 --interface ib0")
	f.Add("--interval 1h -o json --netns /run/netns/x")
	f.Add("-g 10.0.0.1")
	f.Fuzz(func(t *testing.T, line string) {
		r, err := parseWatch(strings.Fields(line), io.Discard)
		if err != nil {
			if !errors.Is(err, errUsage) && !errors.Is(err, pflag.ErrHelp) {
				t.Errorf("%q: error %v isn't one of usage", line, err)
			}
			return
		}
		if len(r.groups)+len(r.mgids) > maxWatched || r.interval <= 0 {
			t.Errorf("%q: got %+v", line, r)
		}
		for _, mgid := range r.mgids {
			if !mgid.Is6() || !mgid.IsMulticast() {
				t.Errorf("%q: MGID %v", line, mgid)
			}
		}
	})
}
