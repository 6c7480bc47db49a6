package controllers

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// NodeMetrics are an agent's own metrics. Their labels are bounded: no group,
// pod or interface is one. The nil value counts nothing.
type NodeMetrics struct {
	memberships *prometheus.GaugeVec
	joins       *prometheus.CounterVec
	planning    prometheus.Histogram
	refused     *prometheus.GaugeVec
	problems    *prometheus.GaugeVec
	selfTests   *prometheus.CounterVec

	seen map[membership.Key]seenMembership // of the planning goroutine alone
}

type seenMembership struct {
	epoch   int64
	failing bool
}

// NewNodeMetrics registers the metrics with registerer.
func NewNodeMetrics(registerer prometheus.Registerer, fabric string) (*NodeMetrics, error) {
	m := &NodeMetrics{
		memberships: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rdma_multicast_memberships",
			Help: "Memberships that this node holds or tries to, by state.",
		}, []string{"state"}),
		joins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdma_multicast_joins_total",
			Help: "Joins and rejoins that succeeded (result joined), and memberships that began to fail (result failed).",
		}, []string{"result"}),
		planning: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "rdma_multicast_planning_duration_seconds",
			Help:    "Time that one planning of all memberships of the node takes, looking at interfaces included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rdma_multicast_unmet_requests",
			Help: "What pods ask for, and groups of the node, and isn't wanted, by reason: PodLimitReached and NodeLimitReached are the agent's limits.",
		}, []string{"reason"}),
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rdma_multicast_port_problems",
			Help: "RDMA ports of the node with something that keeps multicast from working, by reason.",
		}, []string{"reason"}),
		selfTests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdma_multicast_self_tests_total",
			Help: "Interfaces on which the self-test came to its end, by result: passed or failed.",
		}, []string{"result"}),
		seen: map[membership.Key]seenMembership{},
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "rdma_multicast_agent_info",
		Help:        "Always 1; the label fabric is kernel, or simulated where nothing is joined on real hardware.",
		ConstLabels: prometheus.Labels{"fabric": fabric},
	})
	info.Set(1)
	for _, c := range []prometheus.Collector{m.memberships, m.joins, m.planning, m.refused, m.problems, m.selfTests, info} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the agent's metrics: %w", err)
		}
	}
	return m, nil
}

func (m *NodeMetrics) selfTested(passed bool) {
	switch {
	case m == nil:
	case passed:
		m.selfTests.WithLabelValues("passed").Inc()
	default:
		m.selfTests.WithLabelValues("failed").Inc()
	}
}

func (m *NodeMetrics) observeProblems(worst map[membership.Port]*rdma.Problem) {
	if m == nil {
		return
	}
	m.problems.Reset()
	for _, p := range worst {
		m.problems.WithLabelValues(string(p.Reason)).Inc()
	}
}

// observe counts one planning, what it refused, and what is held after it.
func (m *NodeMetrics) observe(took time.Duration, held []membership.Status, verdicts []membership.Verdict) {
	if m == nil {
		return
	}
	m.planning.Observe(took.Seconds())
	m.refused.Reset()
	for _, v := range verdicts {
		m.refused.WithLabelValues(v.Reason).Inc()
	}
	states := map[membership.State]int{
		membership.Waiting: 0, membership.Joining: 0, membership.Joined: 0,
		membership.Failing: 0, membership.Leaving: 0, membership.Refused: 0,
	}
	seen := make(map[membership.Key]seenMembership, len(held))
	for _, s := range held {
		states[s.State]++
		before, known := m.seen[s.Key]
		now := seenMembership{epoch: s.Epoch, failing: s.State == membership.Failing}
		switch {
		case !known && s.State != membership.Joined: // its epoch is that of an earlier time
		case before.epoch == 0 && s.Epoch > 0: // epochs begin anywhere
			m.joins.WithLabelValues("joined").Inc()
		case s.Epoch > before.epoch:
			m.joins.WithLabelValues("joined").Add(float64(s.Epoch - before.epoch))
		}
		if now.failing && !before.failing {
			m.joins.WithLabelValues("failed").Inc()
		}
		seen[s.Key] = now
	}
	m.seen = seen
	for state, n := range states {
		m.memberships.WithLabelValues(string(state)).Set(float64(n))
	}
}
