//go:build realkernel

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The pod goes on for this long after it was told to end.
const linger = 5 * time.Second

// endsGracefully starts a pod, deletes it with a grace period, and holds that
// it is a member for as long as its process goes on. It returns when the
// sandbox has ended.
func (c *cluster) endsGracefully(t *testing.T, name string, n byte) {
	t.Helper()
	c.newGroup(t, namespace, "market-data", group(n).String())
	pod := newPod(name, "market-data", fmt.Sprintf("--linger=%.0f", linger.Seconds()))
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	c.create(t, pod)
	c.isJoinedEverywhere(t, name, "market-data", group(n))
	pid := c.podProcess(t, name)

	c.deletePod(t, name)
	deleted := time.Now()
	looked := 0
	for alive(pid) {
		if err := isMember(pid, podInterface, group(n)); err != nil && alive(pid) {
			t.Fatalf("%s after the deletion, while the pod goes on: %v", time.Since(deleted), err)
		}
		looked++
		if time.Since(deleted) > bound {
			t.Fatalf("the pod's process goes on %s after the deletion", bound)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if lasted := time.Since(deleted); lasted < linger || looked < 10 {
		t.Errorf("the pod's process ended %s after the deletion, looked at %d times: nothing was seen of the grace period", lasted, looked)
	}
	c.eventually(t, "the pod to be gone", func() error { return c.gone(pod) })
}

// alive: is there a process, not just what is left until its parent has waited?
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(text) > 0
}

func gracePeriod(t *testing.T, c *cluster) {
	c.endsGracefully(t, "graceful", 4)
	// An interface that goes under a membership tells the switch nothing.
	c.leftOnSwitch(t, group(4))
	c.entries(t, 0)
	c.groupShows(t, "market-data", "0/0", "True", "NoMembers")
}

func gracePeriodWithoutNRI(t *testing.T, c *cluster) {
	c.restartAgent(t, "")
	t.Cleanup(func() { c.restartAgent(t, nriSocket) })

	c.endsGracefully(t, "graceful", 5)
	// Promised: within 2 s of the sandbox; more on an emulated machine.
	c.within(t, 20*time.Second, "the agent to give the membership up", c.idle)
	// Too late for the wire, or just not: the switch may have been told.
	forgetOnSwitch(t, group(5))
}

func forceDeletedPod(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(6).String())
	pod := newPod("forced", "market-data", fmt.Sprintf("--linger=%.0f", linger.Seconds()))
	c.create(t, pod)
	c.isJoinedEverywhere(t, "forced", "market-data", group(6))

	c.deletePod(t, "forced", client.GracePeriodSeconds(0))
	if err := c.gone(pod); err != nil {
		t.Error(err)
	}
	c.leftOnSwitch(t, group(6))
	c.idleAgain(t)
}

// The runtime forgets, when it is restarted, that the agent is to hear of the
// end of sandboxes made before.
func containerdRestarted(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(19).String())
	pod := newPod("older", "market-data")
	c.create(t, pod)
	c.isJoinedEverywhere(t, "older", "market-data", group(19))
	pid := c.podProcess(t, "older")

	changes := c.switchLogFromNow(t)
	sessions := c.nriSessions(t)
	c.stop(t, c.containerd)
	c.startContainerd(t)
	c.awaitContainerd(t)
	c.eventually(t, "the node to be ready", c.nodeReady)
	if err := isMember(pid, podInterface, group(19)); err != nil {
		t.Error(err)
	}
	if deleted, err := changes.deletions(group(19)); err != nil || len(deleted) > 0 {
		t.Errorf("the switch saw a leave: %q, %v", deleted, err)
	}
	c.eventually(t, "the agent to hear of sandboxes again", func() error {
		if now := c.nriSessions(t); now <= sessions {
			return fmt.Errorf("%d sessions of NRI, as before the restart", now)
		}
		return nil
	})

	c.deletePod(t, "older")
	c.eventually(t, "the pod to be gone", func() error { return c.gone(pod) })
	c.leftOnSwitch(t, group(19))
}

// nriSessions counts how often the agent has begun to follow NRI.
func (c *cluster) nriSessions(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(c.agent.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), "Following sandboxes through NRI")
}

func containerCrash(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(7).String())
	c.create(t, newPod("crashes", "market-data"))
	c.isJoinedEverywhere(t, "crashes", "market-data", group(7))
	before := c.joined(t, "crashes")
	pid := c.podProcess(t, "crashes")

	changes := c.switchLogFromNow(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.eventually(t, "the container to be started again", func() error {
		pids := processWith("--pod=" + namespace + "/crashes")
		if len(pids) != 1 || pids[0] == pid {
			return fmt.Errorf("processes %v, before %d; %w", pids, pid, c.podTrouble("crashes"))
		}
		return nil
	})
	if err := isMember(c.podProcess(t, "crashes"), podInterface, group(7)); err != nil {
		t.Error(err)
	}
	if after := c.joined(t, "crashes"); after.groups[0].Epoch != before.groups[0].Epoch {
		t.Errorf("epoch %d, before the crash %d: it was joined again", after.groups[0].Epoch, before.groups[0].Epoch)
	}
	if deleted, err := changes.deletions(group(7)); err != nil || len(deleted) > 0 {
		t.Errorf("the switch saw a leave: %q, %v", deleted, err)
	}
}

func jobCompletes(t *testing.T, c *cluster) {
	c.newGroup(t, namespace, "market-data", group(8).String())
	template := newPod("job", "market-data")
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	never := int32(0)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job"},
		Spec: batchv1.JobSpec{BackoffLimit: &never, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: template.Annotations},
			Spec:       template.Spec,
		}},
	}
	c.create(t, job)
	t.Cleanup(func() {
		if err := c.client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Errorf("delete the job: %v", err)
		}
	})
	pid := c.podProcess(t, "job")
	c.eventually(t, "the job's pod to be a member", func() error { return isMember(pid, podInterface, group(8)) })
	c.eventually(t, "the switch to deliver", func() error { return onSwitch(group(8)) })

	// It ends by itself, with status 0.
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.leftOnSwitch(t, group(8))
	c.idleAgain(t)
	c.eventually(t, "the job to be complete", func() error {
		if err := c.client.Get(context.Background(), client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if job.Status.Succeeded != 1 {
			return fmt.Errorf("status %+v", job.Status)
		}
		return nil
	})
	var pods corev1.PodList
	if err := c.client.List(context.Background(), &pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp != nil {
		t.Errorf("%d pods: that of the job should still be there, and not be ending", len(pods.Items))
	}
}
