package config_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

// Every sample is taken by a real API server, unknown fields refused, and pods
// ask for groups that the samples have.
func TestSamplesApply(t *testing.T) {
	c := newClient(t, plane.Config)
	// In a cluster its controllers make it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	if err := c.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Glob("samples/*.yaml")
	if err != nil || len(samples) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, sample := range samples {
		t.Run(filepath.Base(sample), func(t *testing.T) {
			out, err := kubectl(t, "", "apply", "--validate=strict", "-f", sample)
			if err != nil || !strings.Contains(out, "created") {
				t.Errorf("kubectl apply: %v\n%s", err, out)
			}
		})
	}
	var groups v1alpha1.MulticastGroupList
	if err := c.List(t.Context(), &groups, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := c.List(t.Context(), &pods, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Error("no sample is a pod")
	}
	everyFeature(t, groups.Items)
	for _, pod := range pods.Items {
		asked := pod.Annotations[v1alpha1.GroupsAnnotation]
		if !slices.ContainsFunc(groups.Items, func(g v1alpha1.MulticastGroup) bool { return strings.Contains(asked, g.Name) }) {
			t.Errorf("pod %s asks for %q, no group of the samples", pod.Name, asked)
		}
	}
}

// everyFeature fails unless each field of a group's spec is in some sample.
func everyFeature(t *testing.T, groups []v1alpha1.MulticastGroup) {
	t.Helper()
	shown := map[string]bool{"selector in full": false}
	for i := range groups {
		spec := reflect.ValueOf(groups[i].Spec)
		for _, field := range reflect.VisibleFields(spec.Type()) {
			shown[field.Name] = shown[field.Name] || !spec.FieldByIndex(field.Index).IsZero()
		}
		shown["IPoIB"] = shown["IPoIB"] || groups[i].Spec.PortSpace == v1alpha1.PortSpaceIPoIB
		shown["send-only"] = shown["send-only"] || groups[i].Spec.Mode == v1alpha1.SendOnlyFullMember
		if s := groups[i].Spec.InterfaceSelector; s != nil && len(s.LinkLayers) > 0 && len(s.Devices) > 0 && len(s.Interfaces) > 0 && len(s.Subnets) > 0 {
			shown["selector in full"] = true
		}
	}
	for feature, is := range shown {
		if !is {
			t.Errorf("no sample shows %s", feature)
		}
	}
}

// What config/ holds is applied as a whole, in any order, by both ways that the
// docs name; and nobody gets more than is written out.
func TestConfigApplies(t *testing.T) {
	for _, args := range [][]string{{"apply", "--server-side", "-k", "."}, {"apply", "--server-side", "-f", "rbac"}} {
		if out, err := kubectl(t, "", args...); err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	c := newClient(t, plane.Config)
	var rules []rbacv1.PolicyRule
	for _, name := range []string{"rdma-multicast-controller", "rdma-multicast-agent"} {
		var cluster rbacv1.ClusterRole
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &cluster); err != nil {
			t.Fatal(err)
		}
		var role rbacv1.Role
		if err := c.Get(t.Context(), client.ObjectKey{Name: name, Namespace: "rdma-multicast-system"}, &role); err != nil {
			t.Fatal(err)
		}
		rules = append(append(rules, cluster.Rules...), role.Rules...)
	}
	for _, rule := range rules {
		for _, field := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			if slices.Contains(field, "*") {
				t.Errorf("a wildcard: %+v", rule)
			}
		}
	}
}

// Every manifest is named by the kustomization.
func TestKustomizationIsComplete(t *testing.T) {
	text, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"crd/bases/*.yaml", "rbac/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !bytes.Contains(text, []byte("- "+file+"\n")) {
				t.Errorf("kustomization.yaml doesn't name %s", file)
			}
		}
	}
}

// The agent may do what it needs and no more.
func TestAgentRights(t *testing.T) {
	if out, err := kubectl(t, "", "apply", "--server-side", "-k", "."); err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	for _, tc := range []struct {
		args    string
		allowed bool
	}{
		{"get multicastgroups -A", true},
		{"update multicastgroups -A", false},
		{"update multicastgroups --subresource=status -A", false},
		{"create multicastnodes", true},
		{"update multicastnodes --subresource=status", true},
		{"delete multicastnodes", false},
		{"list multicastnodes", true},
		{"list nodes", true},
		{"update nodes", false},
		{"patch pods --subresource=status -A", true},
		{"patch pods -A", false},
		{"delete pods -A", false},
		{"list secrets -A", false},
		{"update leases.coordination.k8s.io -n rdma-multicast-system", true},
		{"update leases.coordination.k8s.io -n kube-node-lease", false},
	} {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:rdma-multicast-system:rdma-multicast-agent"}, strings.Fields(tc.args)...)
		out, err := kubectl(t, "", args...)
		answer := strings.HasSuffix(strings.TrimSpace(out), "yes")
		if refused := (*exec.ExitError)(nil); err != nil && !errors.As(err, &refused) {
			t.Fatalf("kubectl %v: %v", args, err)
		}
		if answer != tc.allowed {
			t.Errorf("the agent can %s: %t, want %t (%s)", tc.args, answer, tc.allowed, strings.TrimSpace(out))
		}
	}
}
