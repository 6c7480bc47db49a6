package controllers

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// refusing are the problems of a port that no membership on it survives. Others
// are shown, and a join tells for itself: that the node's own interface has no
// address says nothing about a pod's on the same port, and a self-test that went
// wrong in no known way may itself be at fault.
func refusing(r rdma.Reason) bool {
	return r == rdma.ReasonRoCEv1 || r == rdma.ReasonIWARP || r == rdma.ReasonNoVerbs || r == rdma.ReasonWrongGroupLeft
}

// problemText is a problem without its package's name.
func problemText(p *rdma.Problem) string {
	return oneLine(strings.TrimPrefix(p.Error(), "rdma: "))
}

// worstProblems is the one problem of each port that is shown: one that refuses
// first, then one that stays.
func worstProblems(problems []*rdma.Problem, devices []rdma.Device) map[membership.Port]*rdma.Problem {
	weight := func(p *rdma.Problem) int {
		switch {
		case refusing(p.Reason):
			return 2
		case !p.Reason.Temporary():
			return 1
		}
		return 0
	}
	worst := map[membership.Port]*rdma.Problem{}
	for _, d := range devices {
		for _, port := range d.Ports {
			key := membership.Port{Device: d.Name, Number: port.Number}
			for _, p := range problems {
				if p.Device != d.Name || (p.Port != 0 && p.Port != port.Number) {
					continue
				}
				if worst[key] == nil || weight(p) > weight(worst[key]) {
					worst[key] = p
				}
			}
		}
	}
	return worst
}

// unable are the ports that refuse memberships.
func unable(worst map[membership.Port]*rdma.Problem) map[membership.Port]membership.Problem {
	ports := map[membership.Port]membership.Problem{}
	for port, p := range worst {
		if refusing(p.Reason) {
			ports[port] = membership.Problem{Reason: string(p.Reason), Message: problemText(p)}
		}
	}
	return ports
}

// showProblems puts them beside the ports in a MulticastNode.
func showProblems(ports []v1alpha1.NodeDevice, worst map[membership.Port]*rdma.Problem) {
	for i := range ports {
		p := worst[membership.Port{Device: ports[i].Name, Number: int(ports[i].Port)}]
		if p == nil {
			continue
		}
		ports[i].Problem = &v1alpha1.PortProblem{
			Reason:  string(p.Reason),
			Message: truncate(problemText(p), v1alpha1.MaxPortProblemMessage),
		}
	}
}

// selfTested is the condition SelfTested.
func selfTested(problems []*rdma.Problem, passed int, pending bool) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionSelfTested}
	stays := slices.ContainsFunc(problems, func(p *rdma.Problem) bool { return !p.Reason.Temporary() })
	var texts []string
	for _, p := range problems {
		if !stays || !p.Reason.Temporary() {
			texts = append(texts, problemText(p))
		}
	}
	message := truncate(strings.Join(texts, "; "), maxConditionMessage)
	switch {
	case stays:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonSelfTestFailed, message
	case passed > 0 && !pending:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonSelfTestPassed
		c.Message = fmt.Sprintf("a scratch group was joined and left on %d interfaces", passed)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonSelfTestPending, message
		if message == "" {
			c.Message = "no interface was tested yet"
		}
	}
	return c
}

// probe looks for what keeps multicast from working on the node, as its own
// namespace sees it.
func (s *scopeInterfaces) probe() (problems []*rdma.Problem, err error) {
	err = inNetNS(s.host, s.nodeNetNS, func(ns *rdma.NetNS) error {
		problems, err = s.host.Probe(ns)
		return err
	})
	return problems, err
}
