package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/server"
)

// TestDescribe checks the description of a pod with many things wrong.
func TestDescribe(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	always, yes, no := v1.ContainerRestartPolicyAlways, true, false
	start := ago(time.Hour)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}},
			Containers:     make([]v1.Container, 3)},
		Status: v1.PodStatus{Phase: v1.PodRunning, StartTime: &start,
			Conditions: []v1.PodCondition{
				{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet", Message: "low on\nmemory", LastTransitionTime: ago(time.Minute)},
				{Type: v1.PodResizePending, Status: v1.ConditionFalse},
				{Type: v1.PodInitialized, Status: v1.ConditionTrue},
				{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [b c]", LastTransitionTime: ago(2 * time.Minute)},
				{Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [b c]", LastTransitionTime: ago(2 * time.Minute)},
			},
			InitContainerStatuses: []v1.ContainerStatus{
				{Name: "setup", Ready: true, Started: &no, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed", FinishedAt: ago(59 * time.Minute)}}},
				{Name: "proxy", Ready: false, Started: &no, RestartCount: 1, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: ago(5 * time.Second)}},
					LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: ago(6 * time.Second)}}},
			},
			ContainerStatuses: []v1.ContainerStatus{
				{Name: "a", Ready: true, Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: ago(50 * time.Minute)}}},
				{Name: "b", Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: ago(50 * time.Minute)}}},
				{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
			},
			EphemeralContainerStatuses: []v1.ContainerStatus{
				{Name: "debug", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 2, FinishedAt: ago(time.Minute)}}},
			},
		}}
	var out strings.Builder
	if err := (view{}).writeDetails(&out, server.Listing{Pods: []server.PodInfo{{Pod: p}}}, now); err != nil {
		t.Fatal(err)
	}
	want := `NAMESPACE   NAME   READY   STATUS              RESTARTS     AGE   IP
default     web    1/4     ContainerCreating   1 (6s ago)   60m   <none>

Containers:
  init setup: Completed: exited with code 0 59m ago
  sidecar proxy (1 restart): running for 5s, not started yet; previously exited with code 137 (OOMKilled) 6s ago
  a: running for 50m
  b: running for 50m, not ready
  c: ContainerCreating
  ephemeral debug: Error: exited with code 2 60s ago

Conditions that are not met:
  DisruptionTarget is True for 60s: TerminationByKubelet: low on memory
  Ready is False for 2m: ContainersNotReady: containers with unready status: [b c]
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "Evicted", "The node was low on memory"
	out.Reset()
	if err := (view{}).writeDetails(&out, server.Listing{Pods: []server.PodInfo{{Pod: p}}}, now); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\nEnded:\n  Evicted: The node was low on memory\n") || strings.Contains(out.String(), "Conditions") {
		t.Errorf("an evicted pod:\n%s", out.String())
	}
}
