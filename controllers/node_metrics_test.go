package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// values are the samples of a registry, by name and label.
func values(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			switch {
			case m.GetGauge() != nil:
				got[name] = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				got[name] = m.GetCounter().GetValue()
			default:
				got[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return got
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewNodeMetrics(registry, "simulated")
	if err != nil {
		t.Fatal(err)
	}
	at := func(iface string, state membership.State, epoch int64) membership.Status {
		s := held("a", state, "")
		s.Interface, s.Epoch = iface, epoch
		return s
	}
	m.observe(time.Millisecond, []membership.Status{at("net1", membership.Joined, 1001), at("net2", membership.Failing, 0)}, nil)
	m.observe(time.Millisecond, []membership.Status{at("net1", membership.Joined, 1003), at("net2", membership.Failing, 0)}, nil)
	m.observe(time.Millisecond, []membership.Status{at("net2", membership.Joined, 1)}, []membership.Verdict{refusal("b", "", "PodLimitReached"), refusal("c", "", "PodLimitReached")})
	m.selfTested(true)
	m.selfTested(false)
	m.observeProblems(map[membership.Port]*rdma.Problem{{Device: "gone", Number: 1}: {Reason: rdma.ReasonIWARP}})
	m.observeProblems(map[membership.Port]*rdma.Problem{{Device: "a", Number: 1}: {Reason: rdma.ReasonRoCEv1}, {Device: "b", Number: 1}: {Reason: rdma.ReasonRoCEv1}})
	want := map[string]float64{
		"rdma_multicast_agent_info fabric=simulated":           1,
		"rdma_multicast_unmet_requests reason=PodLimitReached": 2,
		"rdma_multicast_self_tests_total result=passed":        1,
		"rdma_multicast_self_tests_total result=failed":        1,
		"rdma_multicast_port_problems reason=RoCEv1":           2,
		"rdma_multicast_joins_total result=failed":             1,
		"rdma_multicast_joins_total result=joined":             4,
		"rdma_multicast_memberships state=Failing":             0,
		"rdma_multicast_memberships state=Joined":              1,
		"rdma_multicast_memberships state=Joining":             0,
		"rdma_multicast_memberships state=Leaving":             0,
		"rdma_multicast_memberships state=Refused":             0,
		"rdma_multicast_memberships state=Waiting":             0,
		"rdma_multicast_planning_duration_seconds":             3,
	}
	if diff := cmp.Diff(want, values(t, registry)); diff != "" {
		t.Error(diff)
	}
	if _, err := NewNodeMetrics(registry, "kernel"); err == nil {
		t.Error("registering twice with one registry succeeded")
	}
	var none *NodeMetrics
	none.observe(time.Millisecond, nil, nil)
	none.selfTested(true)
	none.observeProblems(nil)
}

func TestMetricsCountAMembershipThatIsWantedAgainOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := NewNodeMetrics(registry, "simulated")
	if err != nil {
		t.Fatal(err)
	}
	at := func(state membership.State, epoch int64) []membership.Status {
		s := held("a", state, "")
		s.Epoch = epoch
		return []membership.Status{s}
	}
	// It keeps the epoch that it had until it is joined.
	for _, statuses := range [][]membership.Status{
		at(membership.Joined, 1001), nil, at(membership.Waiting, 1001), at(membership.Joining, 1001), at(membership.Joined, 1002),
	} {
		m.observe(time.Millisecond, statuses, nil)
	}
	if got := values(t, registry)["rdma_multicast_joins_total result=joined"]; got != 2 {
		t.Errorf("%v joins are counted, want 2", got)
	}
}
