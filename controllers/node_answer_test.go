package controllers

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	"github.com/rdma-multicast/rdma-multicast/internal/membership"
	"github.com/rdma-multicast/rdma-multicast/rdma"
)

// held is a membership of group ns/name on net1.
func held(name string, state membership.State, message string, holders ...string) membership.Status {
	return membership.Status{
		Wanted: membership.Wanted{
			Key:      membership.Key{Scope: "sandbox", Interface: "net1", PortSpace: rdma.PortSpaceUDP, Address: netip.MustParseAddr("239.1.1.7")},
			GroupUID: "uid-" + name, GroupNamespace: "ns", GroupName: name, Device: "mlx5_0", Port: 1, Holders: holders,
		},
		State:   state,
		Message: message,
	}
}

func request(name, iface string, required bool) membership.Request {
	return membership.Request{Namespace: "ns", Name: name, Interface: iface, Required: required}
}

func refusal(name, iface, reason string) membership.Verdict {
	v := membership.Verdict{Holder: "pod", GroupName: name, Interface: iface, State: membership.Refused, Reason: reason, Message: "because\nof that"}
	if name != "" {
		v.GroupNamespace, v.GroupUID = "ns", "uid-"+name
	}
	return v
}

func TestConditionOfAPod(t *testing.T) {
	joined := held("a", membership.Joined, "", "pod")
	tests := map[string]struct {
		requests []membership.Request
		held     []membership.Status
		verdicts []membership.Verdict
		status   corev1.ConditionStatus
		reason   string
		message  string
	}{
		"all joined": {
			requests: []membership.Request{request("a", "", true)}, held: []membership.Status{joined},
			status: "True", reason: "AllJoined", message: "all groups are joined",
		},
		"nothing asked for": {status: "True", reason: "AllJoined", message: "no group is asked for"},
		"not planned yet": {
			requests: []membership.Request{request("a", "net1", true)},
			status:   "False", reason: "Joining", message: "ns/a on net1",
		},
		"joining": {
			requests: []membership.Request{request("a", "", true)}, held: []membership.Status{held("a", membership.Joining, "", "pod")},
			status: "False", reason: "Joining", message: "ns/a on net1",
		},
		"failing comes before joining": {
			requests: []membership.Request{request("a", "", true), request("b", "", true)},
			held:     []membership.Status{held("a", membership.Joining, "", "pod"), held("b", membership.Failing, "join: input/output error", "pod")},
			status:   "False", reason: "JoinFailed", message: "ns/b on net1: join: input/output error; ns/a on net1",
		},
		"the annotation comes first": {
			requests: []membership.Request{request("a", "", true)}, held: []membership.Status{joined},
			verdicts: []membership.Verdict{refusal("b", "", "NotAllowed"), refusal("", "", "InvalidAnnotation")},
			status:   "False", reason: "InvalidAnnotation", message: "rdma-multicast.dev/groups: because; of that; ns/b: because; of that",
		},
		"optional": {
			requests: []membership.Request{request("a", "", true), request("b", "", false)}, held: []membership.Status{joined},
			verdicts: []membership.Verdict{refusal("b", "", "NotAllowed")},
			status:   "True", reason: "AllJoined", message: "all required groups are joined; not joined: ns/b: because; of that",
		},
		"required on one interface, optional on another": {
			requests: []membership.Request{request("b", "net1", false), request("b", "net2", true)},
			verdicts: []membership.Verdict{refusal("b", "net1", "InterfaceNotFound")},
			held: []membership.Status{{Wanted: membership.Wanted{Key: membership.Key{Interface: "net2"},
				GroupNamespace: "ns", GroupName: "b", Holders: []string{"pod"}}, State: membership.Joined}},
			status: "True", reason: "AllJoined", message: "all required groups are joined; not joined: ns/b on net1: because; of that",
		},
		"many": {
			verdicts: []membership.Verdict{refusal("1", "", "X"), refusal("2", "", "X"), refusal("3", "", "X"), refusal("4", "", "X"), refusal("5", "", "X"), refusal("6", "", "X")},
			status:   "False", reason: "X",
			message: "ns/1: because; of that; ns/2: because; of that; ns/3: because; of that; ns/4: because; of that; and 2 more",
		},
		"leaving isn't a problem of its own": {
			held:   []membership.Status{held("a", membership.Leaving, "", "pod")},
			status: "True", reason: "AllJoined", message: "no group is asked for",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := answerPod(membership.Pod{UID: "pod", Requests: tt.requests}, tt.held, tt.verdicts)
			want := corev1.PodCondition{Type: v1alpha1.ConditionGroupsJoined, Status: tt.status, Reason: tt.reason, Message: tt.message}
			if diff := cmp.Diff(want, a.condition); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestStatusOfAMembership(t *testing.T) {
	s := held("a", membership.Joined, "", "pod")
	s.Epoch = 3
	s.LinkLayer, s.TrafficClass = rdma.LinkLayerEthernet, 184
	s.Params = rdma.Params{MGID: netip.MustParseAddr("::ffff:239.1.1.7"), QKey: 0x01234567, GIDIndex: 0, GID: netip.MustParseAddr("::ffff:10.0.0.2"),
		GIDType: rdma.RoCEv2, PKey: 0xffff}
	a := answerPod(membership.Pod{Requests: []membership.Request{request("a", "", true), request("b", "", true)}},
		[]membership.Status{s}, []membership.Verdict{refusal("b", "net2", "InterfaceNotFound")})
	want := []v1alpha1.MembershipStatus{
		{Group: "ns/a", State: v1alpha1.StateJoined, Interface: "net1", Device: "mlx5_0", Port: 1, Mode: v1alpha1.FullMember, MGID: "::ffff:239.1.1.7", QKey: 0x01234567,
			GID: "::ffff:10.0.0.2", GIDIndex: ptr.To[int32](0), GIDType: "RoCE v2", PKey: 0xffff, PKeyIndex: ptr.To[int32](0), TrafficClass: 184, Epoch: 3},
		{Group: "ns/b", State: v1alpha1.StateRefused, Interface: "net2", Reason: "InterfaceNotFound", Message: "because; of that"},
	}
	if diff := cmp.Diff(want, a.statuses); diff != "" {
		t.Error(diff)
	}
	s.State = membership.Failing
	if m := membershipStatus(s, "JoinFailed"); m.MGID != "" || m.GIDIndex != nil || m.Reason != "JoinFailed" {
		t.Errorf("what isn't joined is told an MGID, or no reason: %+v", m)
	}
}

// On InfiniBand the traffic class is the broadcast group's, whatever the group
// says, and the P_Key's index may be unknown.
func TestStatusOnInfiniBand(t *testing.T) {
	s := held("a", membership.Joined, "", "pod")
	s.LinkLayer, s.TrafficClass = rdma.LinkLayerInfiniBand, 184
	s.Params = rdma.Params{MGID: netip.MustParseAddr("ff15:a01b::7"), MLID: 0xc003, PKey: 0x8001, PKeyIndex: -1, TrafficClass: 32}
	m := membershipStatus(s, "")
	if m.TrafficClass != 32 || m.PKey != 0x8001 || m.PKeyIndex != nil || m.MLID != 0xc003 || m.MGID != "ff15:a01b::7" {
		t.Errorf("status is %+v", m)
	}
}

// The states and reasons are one vocabulary; package membership doesn't know the
// API, so its words are its own.
func TestWordsAgree(t *testing.T) {
	for state, want := range map[membership.State]v1alpha1.MembershipState{
		membership.Waiting: v1alpha1.StateWaiting, membership.Joining: v1alpha1.StateJoining, membership.Joined: v1alpha1.StateJoined,
		membership.Failing: v1alpha1.StateFailing, membership.Leaving: v1alpha1.StateLeaving, membership.Refused: v1alpha1.StateRefused,
	} {
		if string(state) != string(want) {
			t.Errorf("state %s is %s in the API", state, want)
		}
	}
	for reason, want := range map[string]string{
		membership.ReasonInvalidAnnotation: v1alpha1.ReasonInvalidAnnotation, membership.ReasonUnknownGroup: v1alpha1.ReasonUnknownGroup,
		membership.ReasonGroupDeleting: v1alpha1.ReasonGroupDeleting, membership.ReasonNotAccepted: v1alpha1.ReasonNotAccepted,
		membership.ReasonNotAllowed: v1alpha1.ReasonNotAllowed, membership.ReasonModeNotAllowed: v1alpha1.ReasonModeNotAllowed,
		membership.ReasonInterfacesUnknown: v1alpha1.ReasonInterfacesUnknown, membership.ReasonNoRDMAInterface: v1alpha1.ReasonNoRDMAInterface,
		membership.ReasonInterfaceNotFound: v1alpha1.ReasonInterfaceNotFound, membership.ReasonInterfaceNotRDMA: v1alpha1.ReasonInterfaceNotRDMA,
		membership.ReasonNotSelected: v1alpha1.ReasonNotSelected, membership.ReasonUnsupportedAddress: v1alpha1.ReasonUnsupportedAddress,
		membership.ReasonNoInterfaceAddress: v1alpha1.ReasonNoInterfaceAddress, membership.ReasonAddressInUse: v1alpha1.ReasonAddressInUse,
		membership.ReasonPodLimitReached: v1alpha1.ReasonPodLimitReached, membership.ReasonNodeLimitReached: v1alpha1.ReasonNodeLimitReached,
		string(rdma.ReasonNoVerbs): v1alpha1.ReasonNoVerbs, string(rdma.ReasonIWARP): v1alpha1.ReasonIWARP, string(rdma.ReasonRoCEv1): v1alpha1.ReasonRoCEv1,
		string(rdma.ReasonNoIPoIB): v1alpha1.ReasonNoIPoIB, string(rdma.ReasonNoInterface): v1alpha1.ReasonNoInterface,
		string(rdma.ReasonPortNotActive): v1alpha1.ReasonPortNotActive, string(rdma.ReasonNotReady): v1alpha1.ReasonNotReady,
		string(rdma.ReasonNoAnswer): v1alpha1.ReasonNoAnswer, string(rdma.ReasonWrongGroupLeft): v1alpha1.ReasonWrongGroupLeft,
		string(rdma.ReasonSelfTestFailed): v1alpha1.ReasonSelfTestFailed,
	} {
		if reason != want {
			t.Errorf("reason %s is %s in the API", reason, want)
		}
	}
}

// The annotation never makes a pod's annotations too large for the API server.
func TestStatusAnnotationFits(t *testing.T) {
	var statuses []v1alpha1.MembershipStatus
	for i := range 1000 {
		statuses = append(statuses, v1alpha1.MembershipStatus{Group: fmt.Sprintf("ns/%d", i), Message: strings.Repeat("m", 200)})
	}
	for name, tt := range map[string]struct {
		others   int
		min, max int // elements shown
	}{
		"alone":           {0, 200, 999},
		"beside 100 KiB":  {100 << 10, 200, 999},
		"beside 255 KiB":  {255 << 10, 1, 10},
		"beside 256 KiB":  {256<<10 - 60, 0, 0},
		"no room at all":  {256<<10 - 1, 0, 0},
		"beside too much": {300 << 10, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			others := map[string]string{"k": strings.Repeat("x", tt.others), v1alpha1.GroupStatusAnnotation: strings.Repeat("y", 60<<10)}
			value, shown, err := statusAnnotation(statuses, others)
			if err != nil {
				t.Fatal(err)
			}
			var decoded []v1alpha1.MembershipStatus
			if err := json.Unmarshal([]byte(value), &decoded); err != nil && value != "" {
				t.Fatalf("%v in %.100q", err, value)
			}
			if len(decoded) != shown || shown < tt.min || shown > tt.max {
				t.Errorf("%d elements, said to be %d; want %d to %d", len(decoded), shown, tt.min, tt.max)
			}
			if total := len("k") + tt.others + len(v1alpha1.GroupStatusAnnotation) + len(value); value != "" && total > 256<<10 {
				t.Errorf("annotations have %d bytes", total)
			}
			if len(value) > maxGroupStatus {
				t.Errorf("%d bytes", len(value))
			}
		})
	}
}

func FuzzTruncate(f *testing.F) {
	f.Add("group is gone", 5)
	f.Add("Gruppe für Bücher — weg", 8)
	f.Add("日本語", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 3 || limit > 4096 {
			return
		}
		cut := truncate(s, limit)
		if len(cut) > limit {
			t.Errorf("truncate(%q, %d) has %d bytes", s, limit, len(cut))
		}
		if utf8.ValidString(s) && !utf8.ValidString(cut) {
			t.Errorf("truncate(%q, %d) = %q", s, limit, cut)
		}
		if len(s) <= limit && cut != s {
			t.Errorf("truncate(%q, %d) = %q", s, limit, cut)
		}
	})
}
