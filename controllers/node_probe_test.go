package controllers

import (
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest"
)

// A refusal ends with its reason, though ports, states and interfaces stay as
// they are: a kernel adds a GID of RoCE v1 before the one of v2, and the
// module ib_uverbs may be loaded late.
func TestRefusalEnds(t *testing.T) {
	node := rdmatest.NewFabric().AddNode("n")
	node.AddNIC("rxe0", "eth1", netip.MustParsePrefix("192.0.2.1/24"))
	table := membership.NewTable(membership.TableOptions{Host: node.Host()})
	p := NewNodePlanner(NodePlannerOptions{Host: node.Host(), Table: table, Log: logr.Discard()})
	defer p.Close()
	start := time.Now()
	look := func(after time.Duration) []*rdma.Problem {
		t.Helper()
		devices, err := p.interfaces.devices(start.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return p.probe(devices, nil)
	}
	if problems := look(0); len(problems) != 0 {
		t.Fatalf("problems are %v", problems)
	}
	p.problems = []*rdma.Problem{{Reason: rdma.ReasonRoCEv1, Device: "rxe0", Port: 1}}
	if problems := look(time.Millisecond); len(problems) != 1 {
		t.Errorf("probed anew without a new listing: %v", problems)
	}
	if problems := look(2 * watchedListing); len(problems) != 0 {
		t.Errorf("a look at the devices later the port is still refused: %v", problems)
	}
	if samePorts([]rdma.Device{{Name: "a"}}, []rdma.Device{{Name: "a", UVerbs: "uverbs0"}}) {
		t.Error("a device that programs can use now makes no difference")
	}
}
