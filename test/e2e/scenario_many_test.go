//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// wave is how many pods there are at a time: kubelet takes 110.
	wave = 50
	// starting is how many of them are being started at a time: with more, the
	// runtime's own deadlines pass on an emulated machine.
	starting = 10
)

// manyPods has 100 pods come and go, half of them at a time, all of them
// members of one group.
func manyPods(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(50).String())
	before, err := c.belongings()
	if err != nil {
		t.Fatal(err)
	}

	first := c.startMembers(t, "first", group(50))
	t.Run("selector changed under 50 members", func(t *testing.T) { selectorChanged(t, c, first, group(50)) })
	c.endMembers(t)
	between, err := c.belongings()
	if err != nil {
		t.Fatal(err)
	}

	c.startMembers(t, "second", group(50))
	c.endMembers(t)
	t.Run("nothing remains of 100 pods", func(t *testing.T) {
		c.leftOnSwitch(t, group(50))
		c.nothingRemains(t, before, between)
	})
}

// nothingRemains waits until there is no more than before the pods.
func (c *cluster) nothingRemains(t *testing.T, before, between belongings) {
	t.Helper()
	// The Go runtime keeps threads that it once needed at a time: those of the
	// first wave. One that is left for each pod, or ten, would be seen.
	threads := between.threads + wave/10
	c.eventually(t, "what the pods had to be gone", func() error {
		now, err := c.belongings()
		if err == nil && (now.files > before.files || now.mounts > before.mounts || now.gids > before.gids || now.threads > threads) {
			err = fmt.Errorf("there are %+v, before the pods %+v, after half of them %+v", now, before, between)
		}
		if err == nil {
			t.Logf("before %+v, after half %+v, after all %+v", before, between, now)
		}
		return err
	})
	c.eventually(t, "the pods' network namespaces to be gone", func() error { return atMostNetNamespaces(c.netNamespaces) })
}

// startMembers starts a wave of pods, holds that each of them is a member of the
// group in its namespace, once, and gives their processes by the pods' names.
func (c *cluster) startMembers(t *testing.T, prefix string, address netip.Addr) map[string]int {
	t.Helper()
	start := time.Now()
	var running map[string]int
	for created := 0; len(running) < wave; {
		for ; created < wave && created-len(running) < starting; created++ {
			c.create(t, newPod(fmt.Sprintf("%s-%02d", prefix, created), "market-data"))
		}
		before := len(running)
		c.eventually(t, "a pod more to run", func() error {
			if running = podProcesses(prefix + "-"); len(running) == before {
				return fmt.Errorf("%d pods of %d run", before, created)
			}
			return nil
		})
	}
	ran := time.Since(start)
	for name, pid := range running {
		c.eventually(t, "pod "+name+" to be a member", func() error { return memberOnce(pid, podInterface, address) })
	}
	c.entry(t, "market-data", wave)
	t.Logf("%d pods ran after %.0f s, all were members after %.0f s", wave, ran.Seconds(), time.Since(start).Seconds())
	return running
}

// podProcesses are the processes of the pods whose name begins so, by name.
func podProcesses(prefix string) map[string]int {
	pids := map[string]int{}
	for argument, pid := range processArguments("--pod=" + namespace + "/" + prefix) {
		pids[argument[len("--pod="+namespace+"/"):]] = pid
	}
	return pids
}

// endMembers deletes all pods and waits until nothing is left of them.
func (c *cluster) endMembers(t *testing.T) {
	t.Helper()
	start := time.Now()
	c.deletePods(t)
	c.podsGone(t)
	t.Logf("all pods were gone after %.0f s", time.Since(start).Seconds())
	c.idleAgain(t)
}

// selectorChanged edits the group's interfaceSelector and holds that exactly the
// difference is left and joined. Each pod's interface has an address of its own,
// so subnets of one address select pods.
func selectorChanged(t *testing.T, c *cluster, pids map[string]int, address netip.Addr) {
	names := slices.Sorted(maps.Keys(pids))
	all := c.membersAre(t, pids, names, address)
	joins := c.joinsCounted(t)
	changes := c.switchLogFromNow(t)

	// 50 → 30: 20 are left, none is joined.
	some := names[:wave*3/5]
	c.selectPods(t, some)
	first := c.membersAre(t, pids, some, address)
	untouched(t, all, first, some...)
	if now := c.joinsCounted(t); now != joins {
		t.Errorf("the agent counts %d joins more, want none", now-joins)
	}
	// 30 → another 30: 10 are left, 10 joined, 20 stay.
	others, both, come := names[wave/5:wave*4/5], names[wave/5:wave*3/5], names[wave*3/5:wave*4/5]
	c.selectPods(t, others)
	second := c.membersAre(t, pids, others, address)
	untouched(t, first, second, both...)
	rejoined(t, all, second, come...)
	if now := c.joinsCounted(t); now != joins+len(come) {
		t.Errorf("the agent counts %d joins more, want %d", now-joins, len(come))
	}
	// They share a port of the switch, which has gone on delivering.
	if deleted, err := changes.deletions(address); err != nil || len(deleted) > 0 {
		t.Errorf("the switch took the entry away while there were members: %q, %v", deleted, err)
	}
}

// selectPods makes the group's interfaceSelector the addresses of these pods.
func (c *cluster) selectPods(t *testing.T, names []string) {
	t.Helper()
	var pods corev1.PodList
	if err := c.client.List(context.Background(), &pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var subnets []string
	for _, pod := range pods.Items {
		if slices.Contains(names, pod.Name) {
			subnets = append(subnets, pod.Status.PodIP+"/32")
		}
	}
	if len(subnets) != len(names) {
		t.Fatalf("%d of %d pods have an address", len(subnets), len(names))
	}
	c.patch(t, &v1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "market-data"}},
		map[string]any{"spec": map[string]any{"interfaceSelector": map[string]any{"subnets": subnets}}})
}

// membersAre waits until these of the pods are told that they are members, and
// the others that they aren't selected; then it holds that the kernel says the
// same of each pod's namespace. It gives what the pods are told.
func (c *cluster) membersAre(t *testing.T, pids map[string]int, members []string, address netip.Addr) told {
	t.Helper()
	var got told
	c.eventually(t, fmt.Sprintf("%d of %d pods to be told that they are members", len(members), len(pids)), func() error {
		var pods corev1.PodList
		if err := c.client.List(context.Background(), &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		got = told{}
		for i := range pods.Items {
			a, err := answerOf(&pods.Items[i])
			if err != nil {
				return err
			}
			name, want := pods.Items[i].Name, v1alpha1.StateRefused
			if slices.Contains(members, name) {
				want = v1alpha1.StateJoined
			}
			if len(a.groups) != 1 || a.groups[0].State != want {
				return fmt.Errorf("pod %s is told %+v, want %s", name, a.groups, want)
			}
			got[name] = a.groups[0]
		}
		return nil
	})
	if len(got) != len(pids) {
		t.Fatalf("%d pods, want %d", len(got), len(pids))
	}
	for name, pid := range pids {
		var want []netip.Addr
		if slices.Contains(members, name) {
			want = []netip.Addr{address}
		}
		if err := memberOnce(pid, podInterface, want...); err != nil {
			t.Errorf("pod %s: %v", name, err)
		}
	}
	c.entryCounts(t, "market-data", int32(len(pids)), int32(len(members)))
	return got
}

// joinsCounted is the agent's count of joins that succeeded.
func (c *cluster) joinsCounted(t *testing.T) int {
	t.Helper()
	response, err := http.Get("http://" + agentMetrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, `rdma_multicast_joins_total{result="joined"} `)
		if !found {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Fatalf("no rdma_multicast_joins_total in the agent's metrics, status %s", response.Status)
	return 0
}
