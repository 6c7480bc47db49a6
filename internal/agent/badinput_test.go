package agent_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/agent"
)

// What a pod asks for wrongly costs it that alone: its condition and one event
// say which and why, its other group is joined, and other pods' are too.
func TestBadInput(t *testing.T) {
	many := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("group-%05d", i)
		}
		return strings.Join(names, ",")
	}
	tests := map[string]struct {
		annotation string // %s: the namespace of groups that aren't the pod's
		good       bool   // it asks for orders too
		reason     string
		says       []string
	}{
		"unknown group":         {"orders,nosuch", true, "UnknownGroup", []string{"/nosuch"}},
		"no permission":         {"orders,%s/secret", true, "NotAllowed", []string{"/secret", "allowedNamespaces"}},
		"no such interface":     {"orders,quotes@net9", true, "InterfaceNotFound", []string{"/quotes", "net9"}},
		"interface isn't RDMA":  {"orders,quotes@eth0", true, "InterfaceNotRDMA", []string{"/quotes", "eth0"}},
		"IPv6 on RoCE v2":       {"orders,six", true, "UnsupportedAddress", []string{"/six", "IPv6", "524"}},
		"malformed element":     {"orders,Orders!", true, "InvalidAnnotation", []string{v1alpha1.GroupsAnnotation, "Orders!"}},
		"malformed JSON":        {`[{"name":"orders"},{"nam":"quotes"}]`, true, "InvalidAnnotation", []string{"nam"}},
		"no JSON at all":        {`[{"name":`, false, "InvalidAnnotation", []string{"JSON"}},
		"250 KiB of it":         {"orders," + strings.Repeat("x", 250<<10), true, "InvalidAnnotation", []string{v1alpha1.GroupsAnnotation}},
		"10,000 groups":         {"orders," + many(10000), true, "InvalidAnnotation", []string{"10001"}},
		"optional and unknown":  {`[{"name":"orders"},{"name":"nosuch","required":false}]`, true, "UnknownGroup", []string{"/nosuch"}},
		"more than the pod may": {"orders,quotes,third", true, "PodLimitReached", []string{"--max-memberships-per-pod", "/third"}},
	}
	w := newWorld(t)
	w.start(func(o *agent.Options) { o.MaxMembershipsPerPod = 2 })
	foreign := &corev1.Namespace{}
	foreign.GenerateName = "foreign-"
	w.create(foreign)
	w.group("orders", orders)
	w.group("quotes", quotes)
	w.group("third", "239.1.1.9")
	w.group("six", "ff0e::1234")
	w.group("secret", "239.1.1.10", func(g *v1alpha1.MulticastGroup) { g.Namespace = foreign.Name })
	other := w.pod("other", "orders")
	other.wantJoined(orders)
	epoch := other.epoch()

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			annotation := strings.ReplaceAll(tt.annotation, "%s", foreign.Name)
			p := w.pod("app-"+fmt.Sprint(w.pods), annotation)
			if tt.good {
				p.wantMember(orders)
			}
			status := corev1.ConditionFalse
			reason, says := tt.reason, tt.says
			if strings.Contains(name, "optional") {
				status, reason = corev1.ConditionTrue, "AllJoined"
			}
			p.wantCondition(status, reason, says...)
			notes := p.wantEvents(tt.reason, 1)
			for _, part := range says {
				if len(notes) == 1 && !strings.Contains(notes[0], part) {
					t.Errorf("event %q doesn't say %q", notes[0], part)
				}
			}
			c, statuses, err := p.get()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.Message, "\n") {
				t.Errorf("condition's message has several lines: %q", c.Message)
			}
			joined := false
			for _, s := range statuses {
				joined = joined || s.Group == w.namespace+"/orders" && s.State == v1alpha1.StateJoined
			}
			if joined != tt.good {
				t.Errorf("group-status says that orders is joined: %v; it is %+v", joined, statuses)
			}
			p.stop()
			p.wantCondition(corev1.ConditionFalse, "SandboxEnded")
			w.delete(p.Pod)
		})
	}
	other.wantJoined(orders)
	if after := other.epoch(); after != epoch {
		t.Errorf("epoch of the other pod %d, before %d: it was joined again", after, epoch)
	}
}
