package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

const groupCount corev1.ResourceName = "count/multicastgroups." + v1alpha1.GroupName

// The quota of the docs and the samples counts groups: the API server's admission
// refuses the one too many. In a cluster the quota controller fills the quota's
// status in, and takes back what is deleted; here the test stands in for it.
func TestQuota(t *testing.T) {
	c := newClient(t, plane.Config)
	ns := namespace(t, c)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "multicast"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{groupCount: resource.MustParse("2")}},
	}
	if err := c.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	use := func(used string) {
		t.Helper()
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{groupCount: resource.MustParse(used)}}
		if err := c.Status().Update(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
	}
	use("0")
	create := func(a string) error { return c.Create(t.Context(), group(ns, address(a))) }
	// The admission plugin's own cache may not have the quota yet, or not its status:
	// the quota says itself when it counts.
	for i, a := range []string{"239.1.1.1", "239.1.1.2"} {
		eventually(t, "a group within the quota is taken and counted", func() error {
			if err := create(a); err != nil {
				return err
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
				return err
			}
			if used := quota.Status.Used[groupCount]; used.Value() != int64(i)+1 {
				return fmt.Errorf("used %v", &used)
			}
			return nil
		})
	}
	err := create("239.1.1.3")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: multicast") ||
		!strings.Contains(err.Error(), "used: "+string(groupCount)+"=2, limited: "+string(groupCount)+"=2") {
		t.Errorf("the third group: %v, want it refused by the quota", err)
	}
	// Another namespace isn't concerned.
	if err := c.Create(t.Context(), group(namespace(t, c), address("239.1.1.3"))); err != nil {
		t.Error(err)
	}
	// One is deleted, and the quota controller has counted.
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
		t.Fatal(err)
	}
	if used := quota.Status.Used[groupCount]; used.Value() != 2 {
		t.Errorf("used %v, want 2", &used)
	}
	use("1")
	eventually(t, "there is room again", func() error { return create("239.1.1.3") })
}

// The sample names the resource that is counted.
func TestQuotaSample(t *testing.T) {
	text, err := os.ReadFile("samples/quota.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, second, ok := strings.Cut(string(text), "\n---\n")
	var quota corev1.ResourceQuota
	if err := yaml.Unmarshal([]byte(second), &quota); err != nil || !ok {
		t.Fatalf("no second document: %v", err)
	}
	if n := quota.Spec.Hard[groupCount]; len(quota.Spec.Hard) != 1 || n.Value() < 1 {
		t.Errorf("the quota limits %v, want %s", quota.Spec.Hard, groupCount)
	}
}
