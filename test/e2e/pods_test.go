//go:build realkernel

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rdma-multicast/rdma-multicast/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespace of the scenarios' objects.
const namespace = "e2e"

// podInterface is the name that CNI gives the pods' macvlan.
const podInterface = "eth0"

// newPod is a pod with a macvlan interface that asks for groups.
func newPod(name, groups string, args ...string) *corev1.Pod {
	no := false
	second := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			TerminationGracePeriodSeconds: &second,
			Containers: []corev1.Container{{
				Name:            "main",
				Image:           podImage,
				ImagePullPolicy: corev1.PullNever,
				Args:            append([]string{"--pod=" + namespace + "/" + name}, args...),
			}},
		},
	}
	if groups != "" {
		pod.Annotations = map[string]string{v1alpha1.GroupsAnnotation: groups}
	}
	return pod
}

// newReceiver is a pod in the node's network namespace with the verbs-only
// receiver. Privileged: nothing hands out /dev/infiniband/uverbs yet.
func newReceiver(name, groups string, group netip.Addr) *corev1.Pod {
	pod := newPod(name, groups)
	yes := true
	pod.Spec.HostNetwork = true
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Volumes = []corev1.Volume{{
		Name:         "infiniband",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/infiniband"}},
	}}
	container := &pod.Spec.Containers[0]
	container.Image = receiverImage
	container.Args = []string{podDevice, group.String(), "600"}
	container.SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "infiniband", MountPath: "/dev/infiniband"}}
	return pod
}

func (c *cluster) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := c.client.Create(context.Background(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// newGroup makes a group.
func (c *cluster) newGroup(t *testing.T, namespace, name, address string) {
	t.Helper()
	c.create(t, &v1alpha1.MulticastGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.MulticastGroupSpec{Address: address},
	})
}

func groupYAML(name, address string) string {
	return fmt.Sprintf(`apiVersion: rdma-multicast.dev/v1alpha1
kind: MulticastGroup
metadata: {namespace: %s, name: %s}
spec: {address: %q}
`, namespace, name, address)
}

// kubectlApply leaves validation to the API server: kubectl would first fetch
// the schema of all that there is, which takes the emulated server a minute.
func (c *cluster) kubectlApply(t *testing.T, yaml string) (string, error) {
	t.Helper()
	return c.kubectl("apply", "--validate=false", "-f", c.write(t, "object.yaml", yaml))
}

// deletePod deletes a pod and doesn't wait.
func (c *cluster) deletePod(t *testing.T, name string, options ...client.DeleteOption) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.client.Delete(context.Background(), pod, options...); err != nil {
		t.Fatalf("delete pod %s: %v", name, err)
	}
}

// gone is nil when the object isn't there any more.
func (c *cluster) gone(object client.Object) error {
	err := c.client.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is still there, finalizers %q, deleted at %v", object.GetName(), object.GetFinalizers(), object.GetDeletionTimestamp())
}

// podProcess waits for the process of a pod's container.
func (c *cluster) podProcess(t *testing.T, name string) int {
	t.Helper()
	var pid int
	c.eventually(t, "pod "+name+" to run", func() error {
		pids := processWith("--pod=" + namespace + "/" + name)
		if len(pids) != 1 {
			return fmt.Errorf("%d processes; %w", len(pids), c.podTrouble(name))
		}
		pid = pids[0]
		return nil
	})
	return pid
}

// podTrouble tells where a pod's start stands.
func (c *cluster) podTrouble(name string) error {
	var pod corev1.Pod
	if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return err
	}
	return fmt.Errorf("phase %s, conditions %v, containers %v", pod.Status.Phase, pod.Status.Conditions, pod.Status.ContainerStatuses)
}

// answer is what the agent told a pod.
type answer struct {
	pod       corev1.Pod
	condition corev1.PodCondition // zero: none yet
	groups    []v1alpha1.MembershipStatus
}

func (c *cluster) answer(name string) (answer, error) {
	var pod corev1.Pod
	if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return answer{}, err
	}
	return answerOf(&pod)
}

// answerOf reads what a pod's object has of the agent's.
func answerOf(pod *corev1.Pod) (answer, error) {
	a := answer{pod: *pod}
	for _, condition := range pod.Status.Conditions {
		if string(condition.Type) == v1alpha1.ConditionGroupsJoined {
			a.condition = condition
		}
	}
	if text := pod.Annotations[v1alpha1.GroupStatusAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &a.groups); err != nil {
			return a, fmt.Errorf("annotation group-status of %s: %w: %q", pod.Name, err, text)
		}
	}
	return a, nil
}

// joined waits until the pod is told that it has all that it asked for.
func (c *cluster) joined(t *testing.T, name string) answer {
	t.Helper()
	return c.conditionIs(t, name, corev1.ConditionTrue)
}

func (c *cluster) conditionIs(t *testing.T, name string, want corev1.ConditionStatus) answer {
	t.Helper()
	var a answer
	c.eventually(t, fmt.Sprintf("condition GroupsJoined=%s of pod %s", want, name), func() (err error) {
		if a, err = c.answer(name); err == nil && a.condition.Status != want {
			err = fmt.Errorf("condition %+v, group-status %+v", a.condition, a.groups)
		}
		return err
	})
	return a
}

// groupShows waits until a group's line in `kubectl get mcg` has the words.
func (c *cluster) groupShows(t *testing.T, name string, words ...string) {
	t.Helper()
	c.eventually(t, fmt.Sprintf("group %s to be shown with %q", name, words), func() error {
		// What kubectl asks for and prints, without starting it for each look.
		raw, err := c.rest.Get().AbsPath("/apis", v1alpha1.GroupVersion.String(), "namespaces", namespace, "multicastgroups", name).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
			DoRaw(context.Background())
		if err != nil {
			return err
		}
		var table metav1.Table
		if err := json.Unmarshal(raw, &table); err != nil {
			return err
		}
		if len(table.Rows) != 1 {
			return fmt.Errorf("%d rows", len(table.Rows))
		}
		return hasWords(fmt.Sprintln(table.Rows[0].Cells...), words)
	})
}

// kubectlShows is groupShows by kubectl itself.
func (c *cluster) kubectlShows(t *testing.T, name string, words ...string) {
	t.Helper()
	out, err := c.kubectl("get", "mcg", "-n", namespace, name)
	if err == nil {
		err = hasWords(out, words)
	}
	if err != nil {
		t.Errorf("kubectl get mcg %s: %v", name, err)
	}
}

func hasWords(text string, words []string) error {
	shown := strings.Fields(text)
	for _, word := range words {
		if !slices.Contains(shown, word) {
			return fmt.Errorf("no %s in %q", word, text)
		}
	}
	return nil
}

// podEvent waits for an event on the pod that has the words in its note.
func (c *cluster) podEvent(t *testing.T, name string, words ...string) {
	t.Helper()
	c.eventually(t, fmt.Sprintf("an event on pod %s with %q", name, words), func() error {
		var events eventsv1.EventList
		if err := c.client.List(context.Background(), &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		var seen []string
	next:
		for _, event := range events.Items {
			if event.Regarding.Kind != "Pod" || event.Regarding.Name != name {
				continue
			}
			seen = append(seen, event.Reason+": "+event.Note)
			for _, word := range words {
				if !strings.Contains(event.Note, word) {
					continue next
				}
			}
			return nil
		}
		return fmt.Errorf("events: %q", seen)
	})
}

// receiver is a verbs-only receiver that runs in a pod.
type receiver struct{ log string }

// receiverOf waits until the pod's receiver has attached its queue pair.
func (c *cluster) receiverOf(t *testing.T, name string) receiver {
	t.Helper()
	var pod corev1.Pod
	if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		t.Fatal(err)
	}
	r := receiver{log: fmt.Sprintf("/var/log/pods/%s_%s_%s/main/0.log", pod.Namespace, pod.Name, pod.UID)}
	c.eventually(t, "the receiver in pod "+name, func() error {
		text, err := os.ReadFile(r.log)
		if err != nil {
			return fmt.Errorf("%w; %w", err, c.podTrouble(name))
		}
		if !strings.Contains(string(text), " attached\n") {
			return fmt.Errorf("it has printed %q", text)
		}
		return nil
	})
	return r
}

var receivedLine = regexp.MustCompile(` received (\d+)\n`)

// received is the number of packets so far.
func (r receiver) received() (int, error) {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return 0, err
	}
	lines := receivedLine.FindAllSubmatch(text, -1)
	if len(lines) == 0 {
		return 0, nil
	}
	return strconv.Atoi(string(lines[len(lines)-1][1]))
}

// expect sends packets to the group and holds that so many more have arrived at
// each of the receivers.
func (c *cluster) expect(t *testing.T, group netip.Addr, want int, receivers ...receiver) {
	t.Helper()
	before := make([]int, len(receivers))
	for i, r := range receivers {
		var err error
		if before[i], err = r.received(); err != nil {
			t.Fatal(err)
		}
	}
	send(t, group)
	arrived := func() error {
		for i, r := range receivers {
			n, err := r.received()
			if err != nil {
				return err
			}
			if n-before[i] != want {
				return fmt.Errorf("%d of %d packets arrived, want %d", n-before[i], packets, want)
			}
		}
		return nil
	}
	if want > 0 {
		c.eventually(t, "packets to arrive", arrived)
	}
	// Nor do more of them come.
	consistently(t, time.Second, "after mckey has sent", arrived)
}

// consistently fails the test when check fails at any time during d.
func consistently(t *testing.T, d time.Duration, what string, check func() error) {
	t.Helper()
	for start := time.Now(); time.Since(start) < d; time.Sleep(50 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatalf("%s, %s later: %v", what, time.Since(start), err)
		}
	}
}

// deleteGroup deletes a group and waits until its object is gone.
func (c *cluster) deleteGroup(t *testing.T, name string) {
	t.Helper()
	group := &v1alpha1.MulticastGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.client.Delete(context.Background(), group); err != nil {
		t.Fatalf("delete group %s: %v", name, err)
	}
	c.eventually(t, "group "+name+" to be gone", func() error { return c.gone(group) })
}

func metaKey(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

func diffStatus(want, got v1alpha1.MembershipStatus) string { return cmp.Diff(want, got) }
