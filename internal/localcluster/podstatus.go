package localcluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// setRunning is kubelet's status of a pod whose containers all run. Ready waits
// for the pod's readiness gates, as it does in kubelet.
func setRunning(pod *corev1.Pod, known *hollowPod, sandbox *sandboxNetwork) {
	started := metav1.NewTime(known.started.Truncate(1e9))
	status := &pod.Status
	status.Phase = corev1.PodRunning
	status.StartTime = &started
	status.HostIP = known.node.address.String()
	status.HostIPs = []corev1.HostIP{{IP: status.HostIP}}
	status.PodIP = sandbox.podIP.String()
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	yes := true
	status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		})
	}
	setPodCondition(status, corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", "")
	setPodCondition(status, corev1.PodInitialized, corev1.ConditionTrue, "", "")
	setPodCondition(status, corev1.ContainersReady, corev1.ConditionTrue, "", "")
	for _, gate := range pod.Spec.ReadinessGates {
		if !conditionTrue(status, gate.ConditionType) {
			setPodCondition(status, corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady",
				"corresponding condition of pod readiness gate \""+string(gate.ConditionType)+"\" isn't True")
			return
		}
	}
	setPodCondition(status, corev1.PodReady, corev1.ConditionTrue, "", "")
}

// setCompleted is kubelet's status of a pod whose containers all exited with
// success.
func setCompleted(pod *corev1.Pod) {
	status := &pod.Status
	status.Phase = corev1.PodSucceeded
	no := false
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		c.Ready, c.Started = false, &no
		terminated := &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: metav1.Now().Rfc3339Copy()}
		if c.State.Running != nil {
			terminated.StartedAt = c.State.Running.StartedAt
		}
		c.State = corev1.ContainerState{Terminated: terminated}
	}
	setPodCondition(status, corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", "")
	setPodCondition(status, corev1.ContainersReady, corev1.ConditionFalse, "PodCompleted", "")
	setPodCondition(status, corev1.PodReady, corev1.ConditionFalse, "PodCompleted", "")
}

func conditionTrue(status *corev1.PodStatus, name corev1.PodConditionType) bool {
	for _, c := range status.Conditions {
		if c.Type == name {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// setPodCondition leaves a condition that is as it should be alone, so that
// nothing is written where nothing has changed.
func setPodCondition(status *corev1.PodStatus, name corev1.PodConditionType, value corev1.ConditionStatus, reason, message string) {
	want := corev1.PodCondition{Type: name, Status: value, Reason: reason, Message: message}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Type != name {
			continue
		}
		if c.Status == value && c.Reason == reason && c.Message == message {
			return
		}
		want.LastTransitionTime = c.LastTransitionTime
		if c.Status != value {
			want.LastTransitionTime = metav1.Now().Rfc3339Copy()
		}
		*c = want
		return
	}
	want.LastTransitionTime = metav1.Now().Rfc3339Copy()
	status.Conditions = append(status.Conditions, want)
}
