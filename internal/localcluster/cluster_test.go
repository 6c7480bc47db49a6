package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
)

func TestCluster(t *testing.T) {
	log := testr.New(t).V(1)
	c, err := Start(t.Context(), Options{Nodes: 2, InfiniBand: 1, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}
	}()

	t.Run("pods without a node get one round robin", func(t *testing.T) {
		on := map[string]int{}
		for _, name := range []string{"one", "two", "three", "four"} {
			create(t, c, pod(name))
			on[running(t, c, name).Spec.NodeName]++
			erase(t, c, name)
		}
		if on["node-1"] != 2 || on["node-2"] != 2 {
			t.Errorf("pods on nodes: %v, want two on each", on)
		}
	})
	t.Run("nodeSelector", func(t *testing.T) {
		nowhere, second := pod("nowhere"), pod("second")
		nowhere.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-3"}
		second.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-2"}
		create(t, c, nowhere)
		create(t, c, second)
		if got := running(t, c, "second").Spec.NodeName; got != "node-2" {
			t.Errorf("pod is on %q, want node-2", got)
		}
		// The binder has passed by this one before that one.
		if p := get(t, c, "nowhere"); p.Spec.NodeName != "" {
			t.Errorf("pod that fits no node is on %s", p.Spec.NodeName)
		}
		erase(t, c, "nowhere")
		erase(t, c, "second")
	})
	t.Run("readiness gate", func(t *testing.T) {
		gated := pod("gated")
		gated.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1alpha1.ConditionGroupsJoined}}
		create(t, c, gated)
		p := running(t, c, "gated")
		if conditionTrue(&p.Status, corev1.PodReady) {
			t.Error("the pod is ready before its gate")
		}
		before := p.DeepCopy()
		setPodCondition(&p.Status, v1alpha1.ConditionGroupsJoined, corev1.ConditionTrue, "Test", "")
		if err := c.Client.Status().Patch(t.Context(), p, client.StrategicMergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the pod is ready", func() error {
			if p := get(t, c, "gated"); !conditionTrue(&p.Status, corev1.PodReady) {
				return errors.New("it isn't")
			}
			return nil
		})
		erase(t, c, "gated")
	})
	t.Run("a pod's network lives as long as its sandbox", func(t *testing.T) {
		asking := pod("asking")
		asking.Annotations = map[string]string{v1alpha1.GroupsAnnotation: "group", StopsAfterAnnotation: "1h"}
		asking.Spec.NodeName = "node-1"
		group := &v1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "group"}}
		group.Spec.Address = "239.1.2.3"
		if err := c.Client.Create(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		create(t, c, asking)
		p := running(t, c, "asking")
		netns, ok := c.PodNetNS(p)
		if !ok {
			t.Fatal("the pod has no sandbox")
		}
		machine := c.Node("node-1").Machine
		address := netip.MustParseAddr(group.Spec.Address)
		eventually(t, "the agent has joined on the pod's macvlan", func() error {
			if machine.IGMP(netns, PodInterface)[address] != 1 {
				return errors.New("IGMP doesn't have the group")
			}
			return nil
		})
		// By force: the object goes at once although the containers would take
		// an hour to stop; the sandbox follows.
		erase(t, c, "asking")
		eventually(t, "the network is gone, the group left", func() error {
			if machine.IGMP(netns, PodInterface) != nil {
				return errors.New("the interface is there")
			}
			if held := machine.Memberships(); len(held) > 0 {
				return errors.New("members are left")
			}
			if _, ids, _ := machine.OpenHandles(); ids > 0 {
				return errors.New("ids are open")
			}
			return nil
		})
		if err := c.Client.Delete(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a pod on InfiniBand is in the pods' partition", func(t *testing.T) {
		asking := pod("asking")
		asking.Annotations = map[string]string{v1alpha1.GroupsAnnotation: "trades"}
		asking.Spec.NodeName = "node-2"
		group := &v1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "trades"}}
		group.Spec.Address = "239.1.2.3"
		if err := c.Client.Create(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		create(t, c, asking)
		mgid := netip.MustParseAddr("ff12:4001:8001::f01:203")
		eventually(t, "the subnet manager has the port as a member", func() error {
			members := c.Subnet.MDB()[mgid].Members
			if len(members) != 1 || members[0].Node != "node-2" || !members[0].Full {
				return fmt.Errorf("members of %v: %+v", mgid, members)
			}
			return nil
		})
		erase(t, c, "asking")
		eventually(t, "the group is left", func() error {
			if members := c.Subnet.MDB()[mgid].Members; len(members) > 0 {
				return fmt.Errorf("members of %v: %+v", mgid, members)
			}
			return nil
		})
		if err := c.Client.Delete(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a pod that completes", func(t *testing.T) {
		job := pod("job")
		job.Annotations = map[string]string{CompletesAfterAnnotation: "10ms"}
		create(t, c, job)
		eventually(t, "the pod has succeeded and has no sandbox", func() error {
			p := get(t, c, "job")
			if _, ok := c.PodNetNS(p); ok || p.Status.Phase != corev1.PodSucceeded {
				return errors.New("phase " + string(p.Status.Phase))
			}
			return nil
		})
		erase(t, c, "job")
	})

	create(t, c, pod("left-running"))
	running(t, c, "left-running")
	stopped = true
	if err := c.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if err := c.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the sockets is left: %v", err)
	}
	for _, n := range c.Nodes {
		if files, ids, namespaces := n.Machine.OpenHandles(); files+ids+namespaces > 0 {
			t.Errorf("%s: %d files, %d ids, %d namespaces are open", n.Name, files, ids, namespaces)
		}
		if len(n.addresses) > 0 {
			t.Errorf("%s: addresses in use: %v", n.Name, n.addresses)
		}
	}
}

func TestStartRefusesNodesItHasNoAddressesFor(t *testing.T) {
	for _, opts := range []Options{{}, {Nodes: -1}, {Nodes: maxNodes + 1}, {Nodes: 1, InfiniBand: 2}, {Nodes: 1, InfiniBand: -1}} {
		if c, err := Start(t.Context(), opts); err == nil {
			t.Errorf("%d nodes, %d on InfiniBand: started", opts.Nodes, opts.InfiniBand)
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
}

func create(t *testing.T, c *Cluster, p *corev1.Pod) {
	t.Helper()
	if err := c.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *Cluster, name string) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

func running(t *testing.T, c *Cluster, name string) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	eventually(t, "pod "+name+" runs", func() error {
		if p = get(t, c, name); p.Status.Phase != corev1.PodRunning {
			return errors.New("phase " + string(p.Status.Phase))
		}
		return nil
	})
	return p
}

// erase deletes a pod by force.
func erase(t *testing.T, c *Cluster, name string) {
	t.Helper()
	err := c.Client.Delete(t.Context(), pod(name), client.GracePeriodSeconds(0))
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
