package controllers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

func TestEthernetAddress(t *testing.T) {
	ib := &v1alpha1.InterfaceSelector{LinkLayers: []v1alpha1.LinkLayer{v1alpha1.LinkLayerInfiniBand}}
	for _, tc := range []struct {
		spec v1alpha1.MulticastGroupSpec
		want string // "": none
	}{
		{v1alpha1.MulticastGroupSpec{Address: "239.1.1.7"}, "01:00:5e:01:01:07"},
		{v1alpha1.MulticastGroupSpec{Address: "239.129.1.7"}, "01:00:5e:01:01:07"},
		{v1alpha1.MulticastGroupSpec{Address: "224.128.255.254"}, "01:00:5e:00:ff:fe"},
		{v1alpha1.MulticastGroupSpec{Address: "239.255.255.255"}, "01:00:5e:7f:ff:ff"},
		{v1alpha1.MulticastGroupSpec{Address: "239.1.1.7", InterfaceSelector: ib}, ""},
		{v1alpha1.MulticastGroupSpec{Address: "ff15::7"}, ""},
		{v1alpha1.MulticastGroupSpec{MGID: "ff15:a01b:fe80::7"}, ""},
		{v1alpha1.MulticastGroupSpec{Address: "10.0.0.1"}, ""},
		{v1alpha1.MulticastGroupSpec{Address: "nonsense"}, ""},
	} {
		if got, ok := ethernetAddress(&tc.spec); got != tc.want || ok != (tc.want != "") {
			t.Errorf("ethernetAddress(%+v) = %q, %t; want %q", tc.spec, got, ok, tc.want)
		}
	}
}

func TestSharers(t *testing.T) {
	g := groupOf("a", "239.1.1.7", 0, 2)
	others := []v1alpha1.MulticastGroup{
		g,
		groupOf("f", "226.1.1.7", 0, 1), // its last edit isn't accepted yet
		groupOf("b", "239.129.1.7", 0, 2),
		deleting(groupOf("c", "238.1.1.7", 0, 2)),
		groupOf("d", "237.1.1.7", 0, 0),                                      // isn't in force
		groupOf("e", "239.1.1.7", 0, 2),                                      // the address itself: a conflict
		groupOf("h", "239.1.1.8", 0, 2),                                      // another one
		onInfiniBand(groupOf("i", "225.1.1.7", 0, 2), v1alpha1.PortSpaceUDP), // has none
	}
	want := []string{"feeds/group-b (239.129.1.7)", "feeds/group-c (238.1.1.7)", "feeds/group-f (226.1.1.7)"}
	if diff := cmp.Diff(want, sharers(&g, others)); diff != "" {
		t.Errorf("sharers (-want +got):\n%s", diff)
	}
	alone := onInfiniBand(g, v1alpha1.PortSpaceUDP)
	if got := sharers(&alone, others); got != nil {
		t.Errorf("without an Ethernet address it has sharers %q", got)
	}
}

func TestEthernetUniqueness(t *testing.T) {
	var many []string
	for i := range 31 {
		many = append(many, fmt.Sprintf("feeds/g%02d (%d.1.1.7)", i, 224+i%16))
	}
	onEthernet := groupOf("a", "239.1.1.7", 0, 2)
	for name, tc := range map[string]struct {
		group   v1alpha1.MulticastGroup
		sharers []string
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"alone":      {onEthernet, nil, metav1.ConditionTrue, v1alpha1.ReasonNotShared, "01:00:5e:01:01:07"},
		"one":        {onEthernet, many[:1], metav1.ConditionFalse, v1alpha1.ReasonEthernetAddressShared, "is also that of feeds/g00 (224.1.1.7):"},
		"many":       {onEthernet, many, metav1.ConditionFalse, v1alpha1.ReasonEthernetAddressShared, "feeds/g04 (228.1.1.7) and 26 more:"},
		"InfiniBand": {onInfiniBand(onEthernet, v1alpha1.PortSpaceUDP), nil, metav1.ConditionTrue, v1alpha1.ReasonNotOnEthernet, "no Ethernet address"},
	} {
		t.Run(name, func(t *testing.T) {
			c := ethernetUniqueness(&tc.group, tc.sharers)
			if c.Type != v1alpha1.ConditionEthernetAddressUnique || c.Status != tc.status || c.Reason != tc.reason || c.ObservedGeneration != 2 {
				t.Errorf("condition %+v", c)
			}
			if !strings.Contains(c.Message, tc.message) {
				t.Errorf("message %q doesn't say %q", c.Message, tc.message)
			}
		})
	}
}

// A group that isn't in force has no such condition, and one that is being
// deleted keeps it.
func TestEthernetUniquenessOfWhichGroups(t *testing.T) {
	g, holder := groupOf("a", "239.1.1.7", 0, 2), groupOf("b", "239.1.1.7", 9, 2)
	g.Status = statusOf(&g, nil, []string{"feeds/c (239.129.1.7)"}, nil)
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionEthernetAddressUnique); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("in force: condition %+v", c)
	}
	gone := deleting(g)
	if status := statusOf(&gone, nil, nil, nil); !meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionEthernetAddressUnique) {
		t.Errorf("being deleted: conditions %+v", status.Conditions)
	}
	if status := statusOf(&g, &holder, nil, nil); meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionEthernetAddressUnique) != nil {
		t.Errorf("not in force: conditions %+v", status.Conditions)
	}
}
