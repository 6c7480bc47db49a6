package conformance

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// probing has what a program finds out before it joins, and while it runs.
func probing() []Scenario {
	scratch := netip.MustParseAddr("239.255.255.240")
	return []Scenario{
		{"probing finds nothing where all is well, and what is missing", func(t *testing.T, m Machine) {
			probe := func() []*rdma.Problem {
				t.Helper()
				problems, err := m.Host().Probe(nil)
				if err != nil {
					t.Fatal(err)
				}
				return problems
			}
			if problems := probe(); len(problems) > 0 {
				t.Errorf("got problems %v, want none", problems)
			}
			m.DeleteAddress(t, "", link1, netip.MustParsePrefix("10.0.0.3/24"))
			m.DeleteAddress(t, "", link1, netip.MustParsePrefix("fd00::3/64"))
			if got := probe(); len(got) != 1 || got[0].Reason != rdma.ReasonNoInterface || got[0].Device != device1 || got[0].Port != 1 {
				t.Errorf("without an address on %s: got problems %v", link1, got)
			}
			m.AddAddress(t, "", link1, netip.MustParsePrefix("10.0.0.3/24"))
			m.AddAddress(t, "", link1, netip.MustParsePrefix("fd00::3/64"))
			if err := m.UnloadUCM(); err != nil {
				t.Fatal(err)
			}
			got := probe()
			m.LoadUCM(t)
			if len(got) != 1 || got[0].Reason != rdma.ReasonNoRDMACM || !errors.Is(got[0], rdma.ErrUnavailable) {
				t.Errorf("without rdma_cm: got problems %v", got)
			}
		}},
		{"the self-test passes, and leaves everything as it was", func(t *testing.T, m Machine) {
			path := m.AddNetNS(t)
			m.AddMACVLAN(t, path, "net1", link0, netip.MustParsePrefix("10.0.0.95/24"))
			ns, err := m.Host().OpenNetNS(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := ns.Close(); err != nil {
					t.Error(err)
				}
			})
			// Somebody has the scratch group already.
			ch := OpenChannel(t, m)
			Join(t, ch, Bind(t, ch, addr0()), scratch, rdma.JoinOptions{})
			for _, on := range []struct {
				ns    *rdma.NetNS
				path  string
				link  string
				users int
			}{{nil, "", link0, 1}, {ns, path, "net1", 0}} {
				if err := m.Host().SelfTest(t.Context(), on.ns, on.link, scratch); err != nil {
					t.Errorf("on %s: %v", on.link, err)
				}
				wantIGMP(t, m, on.path, on.link, scratch, on.users)
				wantIGMP(t, m, on.path, on.link, scratch.Next(), 0)
			}
		}},
		{"the self-test says why it can't be", func(t *testing.T, m Machine) {
			m.AddPlain(t, "", "plain0", netip.MustParsePrefix("10.9.0.1/24"))
			var p *rdma.Problem
			for _, link := range []string{"plain0", "missing0"} {
				if err := m.Host().SelfTest(t.Context(), nil, link, scratch); !errors.As(err, &p) || p.Reason != rdma.ReasonNoInterface {
					t.Errorf("on %s: got error %v, want one with %s", link, err, rdma.ReasonNoInterface)
				}
			}
			err := m.Host().SelfTest(t.Context(), nil, link0, netip.MustParseAddr("ff0e::1234"))
			if !errors.As(err, &p) || p.Reason != rdma.ReasonSelfTestFailed || !errors.Is(err, rdma.ENOTSUPP) {
				t.Errorf("with an IPv6 group: got error %v, want one with ENOTSUPP", err)
			}
		}},
		{"a watch of interfaces leads to the right list", func(t *testing.T, m Machine) {
			watch, err := m.Host().WatchInterfaces(nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := watch.Close(); err != nil {
					t.Error(err)
				}
				for range watch.Changed() { // what it had to tell
				}
			})
			listed := func(want bool) {
				t.Helper()
				deadline := time.After(Patience)
				for {
					interfaces, err := m.Host().Interfaces(nil)
					if err == nil && want == slices.ContainsFunc(interfaces, func(i rdma.Interface) bool { return i.Name == "child0" }) {
						return
					}
					select {
					case _, open := <-watch.Changed():
						if !open {
							t.Fatalf("the watch has ended: %v", watch.Err())
						}
					case <-deadline:
						t.Fatalf("child0 listed: not %v within %v, and no more changes told (%v)", want, Patience, err)
					}
				}
			}
			listed(false)
			m.AddMACVLAN(t, "", "child0", link0, netip.MustParsePrefix("10.0.0.96/24"))
			listed(true)
			m.DeleteInterface(t, "", "child0")
			listed(false)
		}},
	}
}
