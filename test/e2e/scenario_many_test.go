//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
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
	// wave is how many pods there are at a time, groupsEach how many groups each
	// of them asks for: 50 memberships.
	wave, groupsEach = 10, 5
	// starting is how many of them are being started at a time: with more, the
	// runtime's own deadlines pass on an emulated machine.
	starting = 5
	// podsVariable is the environment variable that says how many pods come and
	// go in all, in waves.
	podsVariable = "E2E_PODS"
)

// manyGroups are the groups that each of many pods asks for, by name.
func manyGroups() map[string]netip.Addr {
	groups := map[string]netip.Addr{}
	for n := range groupsEach {
		groups[fmt.Sprintf("feed-%d", n)] = group(byte(50 + n))
	}
	return groups
}

// manyPods has pods come and go by the wave, all of them members of the same
// groups.
func manyPods(t *testing.T, c *cluster) {
	total := 2 * wave
	if text := os.Getenv(podsVariable); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil || total < 2*wave || total%wave != 0 {
			t.Fatalf("%s=%s: must be a multiple of %d, at least twice that", podsVariable, text, wave)
		}
	}
	for name, address := range manyGroups() {
		c.newGroup(t, namespace, name, address.String())
	}
	before := c.belongings(t)
	var between belongings
	for n := range total / wave {
		pids := c.startMembers(t, fmt.Sprintf("wave-%d", n))
		if n == 0 {
			t.Run("selectors changed under 50 members", func(t *testing.T) { selectorsChanged(t, c, pids) })
		}
		c.endMembers(t)
		if n == 0 {
			c.selectPods(t, nil)
			between = c.belongings(t)
		}
	}
	t.Run("nothing remains", func(t *testing.T) {
		for _, address := range manyGroups() {
			c.leftOnSwitch(t, address)
		}
		c.nothingRemains(t, before, between)
	})
}

// nothingRemains waits until there is no more than before the pods.
func (c *cluster) nothingRemains(t *testing.T, before, between belongings) {
	t.Helper()
	// The Go runtime keeps threads that it once needed at a time: those of the
	// first wave. One that is left for each pod, or each second one, would be
	// seen.
	threads := between.threads + wave/2 - 1
	c.eventually(t, "what the pods had to be gone", func() error {
		now, err := c.countBelongings()
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

// startMembers starts a wave of pods, holds that each of them is a member of
// each group in its namespace, once, and gives their processes by the pods'
// names.
func (c *cluster) startMembers(t *testing.T, prefix string) map[string]int {
	t.Helper()
	groups := manyGroups()
	addresses := slices.Collect(maps.Values(groups))
	asked := strings.Join(slices.Sorted(maps.Keys(groups)), ", ")
	start := time.Now()
	var running map[string]int
	for created := 0; len(running) < wave; {
		for ; created < wave && created-len(running) < starting; created++ {
			c.create(t, newPod(fmt.Sprintf("%s-%02d", prefix, created), asked))
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
		c.eventually(t, "pod "+name+" to be a member", func() error { return memberOnce(pid, podInterface, addresses...) })
	}
	for name := range groups {
		c.entry(t, name, wave)
	}
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

// selection says which pods each group's interfaceSelector selects; nil: all.
type selection map[string][]string

// sliding selects, of pods in a row and for each group another part of the row,
// 6 of 10 pods from the one at index from, counted around.
func sliding(names []string, from int) selection {
	selected := selection{}
	for n, name := range slices.Sorted(maps.Keys(manyGroups())) {
		for i := range len(names) * 6 / 10 {
			selected[name] = append(selected[name], names[(from+n+i)%len(names)])
		}
	}
	return selected
}

// has says whether the pod is selected for a group.
func (s selection) has(group, pod string) bool { return s == nil || slices.Contains(s[group], pod) }

// memberships are those of the selection, by what they are told by.
func (s selection) memberships(names []string) map[string]bool {
	all := map[string]bool{}
	for group := range manyGroups() {
		for _, pod := range names {
			if s.has(group, pod) {
				all[pod+" "+group] = true
			}
		}
	}
	return all
}

// selectorsChanged edits the groups' interfaceSelectors and holds that exactly
// the difference is left and joined. Each pod's interface has an address of its
// own, so subnets of one address select pods.
func selectorsChanged(t *testing.T, c *cluster, pids map[string]int) {
	names := slices.Sorted(maps.Keys(pids))
	last, before := selection(nil), c.membersAre(t, pids, nil)
	joins := c.joinsCounted(t)
	var changes []mdbLog
	for range manyGroups() {
		changes = append(changes, c.switchLogFromNow(t))
	}
	for _, step := range []struct {
		next               selection
		leave, join, stays int
	}{
		{sliding(names, 0), 20, 0, 30},
		{sliding(names, 2), 10, 10, 20},
	} {
		c.selectPods(t, step.next)
		after := c.membersAre(t, pids, step.next)
		var left, joined, stayed []string
		was, is := last.memberships(names), step.next.memberships(names)
		for membership := range was {
			if is[membership] {
				stayed = append(stayed, membership)
			} else {
				left = append(left, membership)
			}
		}
		for membership := range is {
			if !was[membership] {
				joined = append(joined, membership)
			}
		}
		if len(left) != step.leave || len(joined) != step.join || len(stayed) != step.stays {
			t.Fatalf("the test is wrong: %d leave, %d join, %d stay", len(left), len(joined), len(stayed))
		}
		untouched(t, before, after, stayed...)
		now := c.joinsCounted(t)
		if now-joins != step.join {
			t.Errorf("the agent counts %d joins more, want %d", now-joins, step.join)
		}
		joins, last, before = now, step.next, after
	}
	// The pods share a port of the switch, which has gone on delivering.
	for n, address := range slices.SortedFunc(maps.Values(manyGroups()), netip.Addr.Compare) {
		if deleted, err := changes[n].deletions(address); err != nil || len(deleted) > 0 {
			t.Errorf("the switch took the entry away while there were members: %q, %v", deleted, err)
		}
	}
}

// selectPods makes each group's interfaceSelector the addresses of its pods.
func (c *cluster) selectPods(t *testing.T, selected selection) {
	t.Helper()
	var pods corev1.PodList
	if err := c.client.List(context.Background(), &pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for name := range manyGroups() {
		var selector any
		if selected != nil {
			var subnets []string
			for _, pod := range pods.Items {
				if selected.has(name, pod.Name) {
					subnets = append(subnets, pod.Status.PodIP+"/32")
				}
			}
			if len(subnets) != len(selected[name]) {
				t.Fatalf("%d of %d pods are there", len(subnets), len(selected[name]))
			}
			selector = map[string]any{"subnets": subnets}
		}
		c.patch(t, &v1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
			map[string]any{"spec": map[string]any{"interfaceSelector": selector}})
	}
}

// membersAre waits until the pods are told that they are members of the groups
// that they are selected for, and that the others don't select them; then it
// holds that the kernel says the same of each pod's namespace. It gives what the
// pods are told.
func (c *cluster) membersAre(t *testing.T, pids map[string]int, selected selection) told {
	t.Helper()
	var got told
	c.eventually(t, "the pods to be told which groups select them", func() error {
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
			for _, status := range a.groups {
				pod, group, want := a.pod.Name, status.Group[len(namespace)+1:], v1alpha1.StateRefused
				if selected.has(group, pod) {
					want = v1alpha1.StateJoined
				}
				if status.State != want {
					return fmt.Errorf("pod %s is told %+v, want %s", pod, status, want)
				}
				got[pod+" "+group] = status
			}
			if len(a.groups) != groupsEach {
				return fmt.Errorf("pod %s is told %+v", a.pod.Name, a.groups)
			}
		}
		return nil
	})
	if len(got) != len(pids)*groupsEach {
		t.Fatalf("%d memberships are told, want %d", len(got), len(pids)*groupsEach)
	}
	joined := map[string]int32{}
	for pod, pid := range pids {
		var want []netip.Addr
		for name, address := range manyGroups() {
			if selected.has(name, pod) {
				want = append(want, address)
				joined[name]++
			}
		}
		if err := memberOnce(pid, podInterface, want...); err != nil {
			t.Errorf("pod %s: %v", pod, err)
		}
	}
	for name := range manyGroups() {
		c.entryCounts(t, name, int32(len(pids)), joined[name])
	}
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
