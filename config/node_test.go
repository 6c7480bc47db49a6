package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// fullNode has all that the bounds allow: nodes that are members of 2,048 groups
// with the longest of names, each with a message.
func fullNode(name string) *v1alpha1.MulticastNode {
	pad := func(i, length int) string {
		s := fmt.Sprintf("%05d", i)
		return s + strings.Repeat("x", length-len(s))
	}
	numa := int32(7)
	n := &v1alpha1.MulticastNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeUID, n.Status.BootID = types.UID(pad(0, 36)), pad(0, 36)
	for i := range v1alpha1.MaxNodeDevices {
		d := v1alpha1.NodeDevice{Name: pad(i, 64), Port: 1, LinkLayer: v1alpha1.LinkLayerInfiniBand, State: "Active", NodeGUID: "0011:2233:4455:6677", NUMANode: &numa,
			Problem: &v1alpha1.PortProblem{Reason: strings.Repeat("R", 64), Message: strings.Repeat("m", v1alpha1.MaxPortProblemMessage)}}
		for j := range v1alpha1.MaxDeviceInterfaces {
			d.Interfaces = append(d.Interfaces, pad(j, 15))
		}
		n.Status.Devices = append(n.Status.Devices, d)
	}
	for i := range v1alpha1.MaxNodeGroups {
		n.Status.Groups = append(n.Status.Groups, v1alpha1.NodeGroup{
			Namespace: pad(i, 63), Name: pad(i, 253), UID: types.UID(pad(i, 36)), Generation: 1000, Members: 250, Joined: 200, Failing: 250,
			Message: strings.Repeat("m", v1alpha1.MaxNodeGroupMessage),
		})
	}
	return n
}

// A node with all bounds reached can still be written: what CRDs, API server and
// etcd allow fits together.
func TestFullNodeIsTaken(t *testing.T) {
	c := newClient(t, plane.Config)
	n := fullNode("full")
	status := *n.Status.DeepCopy()
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	n.Status = status
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	// Again, with somebody else's fields on it.
	n.Labels = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a full MulticastNode has %d bytes of JSON", len(text))
}

func TestNodeRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.MulticastNodeStatus)
		want   string
	}{
		"too many groups":  {func(s *v1alpha1.MulticastNodeStatus) { s.Groups = append(s.Groups, s.Groups[0]) }, "status.groups: Too many: 2049: must have at most 2048 items"},
		"message too long": {func(s *v1alpha1.MulticastNodeStatus) { s.Groups[0].Message += "m" }, "status.groups[0].message: Too long: may not be more than 256"},
		"no UID":           {func(s *v1alpha1.MulticastNodeStatus) { s.Groups[1].UID = "" }, "status.groups[1].uid: Required value"},
		"negative count":   {func(s *v1alpha1.MulticastNodeStatus) { s.Groups[1].Joined = -1 }, "status.groups[1].joined"},
		"too many devices": {func(s *v1alpha1.MulticastNodeStatus) {
			s.Devices = append(s.Devices, v1alpha1.NodeDevice{Name: "a", Port: 1})
		}, "must have at most 64 items"},
		"one device twice":       {func(s *v1alpha1.MulticastNodeStatus) { s.Devices[1] = s.Devices[0] }, "status.devices[1]: Duplicate value"},
		"port 0":                 {func(s *v1alpha1.MulticastNodeStatus) { s.Devices[0].Port = 0 }, "status.devices[0].port"},
		"unknown link layer":     {func(s *v1alpha1.MulticastNodeStatus) { s.Devices[0].LinkLayer = "iWARP" }, "status.devices[0].linkLayer"},
		"problem without reason": {func(s *v1alpha1.MulticastNodeStatus) { s.Devices[0].Problem.Reason = "" }, "status.devices[0].problem.reason: Required value"},
		"reason of two words":    {func(s *v1alpha1.MulticastNodeStatus) { s.Devices[0].Problem.Reason = "No verbs" }, "status.devices[0].problem.reason: Invalid value"},
		"problem too long":       {func(s *v1alpha1.MulticastNodeStatus) { s.Devices[0].Problem.Message += "m" }, "status.devices[0].problem.message: Too long: may not be more than 256"},
		"interface name of 16":   {func(s *v1alpha1.MulticastNodeStatus) { s.Devices[0].Interfaces[0] += "x" }, "status.devices[0].interfaces[0]: Too long"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, plane.Config)
			n := fullNode("refused-" + strings.ToLower(strings.ReplaceAll(name, " ", "-")))
			status := *n.Status.DeepCopy()
			if err := c.Create(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			tc.change(&status)
			n.Status = status
			err := c.Status().Update(t.Context(), n)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Update: %v, want it refused with %q", err, tc.want)
			}
		})
	}
}
