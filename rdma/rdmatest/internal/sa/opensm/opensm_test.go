//go:build opensm

package opensm

import (
	"testing"

	"github.com/rdma-multicast/rdma-multicast/rdma/rdmatest/internal/sa"
)

// TestOpenSM plays all scenarios on one subnet, each from the state that the one
// before left: no members, unless it is about just that.
func TestOpenSM(t *testing.T) {
	s := startSubnet(t)
	scenarios := []struct {
		name string
		play func(*play)
	}{
		{"create_and_join", createAndJoin},
		{"as_the_kernel_asks", asTheKernelAsks},
		{"send_only", sendOnly},
		{"leave", leave},
		{"join_states", joinStates},
		{"missing_components", missingComponents},
		{"mismatches", mismatches},
		{"MTUs", mtus},
		{"rates", rates},
		{"MGIDs", mgids},
		{"MGID_zero", mgidZero},
		{"IPoIB_groups", ipoibGroups},
		{"partitions", partitions},
		{"other_ports", otherPorts},
		{"MLIDs", allMLIDs},
		{"queries", queries},
		{"random_requests", randomRequests},
		{"port_gone", portGone},
		{"lost_MLID", lostMLID},
		{"restart", restart},
		{"all_refusals", allRefusals},
		{"reviewed_differences", allDifferences},
	}
	for _, scenario := range scenarios {
		ok := t.Run(scenario.name, func(t *testing.T) {
			p := &play{subnet: s, t: t, cover: map[sa.Status]int{}}
			scenario.play(p)
			p.tidy()
			t.Logf("%d requests; answers by status: %v", p.asked, p.cover)
		})
		if !ok {
			t.Fatal("the two SAs' states may differ from here on")
		}
	}
}
