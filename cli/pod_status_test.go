package cli

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStatusColumn expects the words of kubectl get pods for the same pod.
func TestStatusColumn(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	yes := true
	cs := func(name string, s v1.ContainerState) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, State: s, Ready: s.Running != nil, Started: &yes}
	}
	run := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	wait := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	end := func(reason string, code, signal int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}
	}
	initialized := []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue}}
	deleted := metav1.Now()
	no := false
	unstarted := func(s v1.ContainerStatus) v1.ContainerStatus {
		s.Started, s.Ready = &no, false
		return s
	}
	unready := func(s v1.ContainerStatus) v1.ContainerStatus {
		s.Ready = false
		return s
	}
	side := []v1.Container{{Name: "s", RestartPolicy: &always}}
	with := func(init []v1.Container, inits []v1.ContainerStatus, conditions []v1.PodCondition, regular ...v1.ContainerStatus) v1.Pod {
		return v1.Pod{Spec: v1.PodSpec{InitContainers: init, Containers: make([]v1.Container, len(regular))},
			Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: conditions, InitContainerStatuses: inits, ContainerStatuses: regular}}
	}
	tests := []struct {
		name        string
		pod         v1.Pod
		status      string
		ready, want int
	}{
		{"no status yet", v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 2)}}, "Pending", 0, 2},
		{"reason of the pod", v1.Pod{Status: v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}}, "Evicted", 0, 0},
		{"running", v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 1)}, Status: v1.PodStatus{Phase: v1.PodRunning,
			ContainerStatuses: []v1.ContainerStatus{cs("a", run)}}}, "Running", 1, 1},
		{"the first one's reason wins", v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 2)}, Status: v1.PodStatus{Phase: v1.PodPending,
			ContainerStatuses: []v1.ContainerStatus{cs("a", wait("ErrImagePull")), cs("b", wait("ContainerCreating"))}}}, "ErrImagePull", 0, 2},
		{"killed by a signal", v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{cs("a", end("", 0, 9))}}}, "Signal:9", 0, 0},
		{"exit code alone", v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{cs("a", end("", 3, 0))}}}, "ExitCode:3", 0, 0},
		{"one done, one runs", v1.Pod{Status: v1.PodStatus{Conditions: initialized,
			ContainerStatuses: []v1.ContainerStatus{cs("a", end("Completed", 0, 0)), cs("b", run)}}}, "Running", 1, 0},
		{"one done, one runs, not ready", v1.Pod{Status: v1.PodStatus{
			ContainerStatuses: []v1.ContainerStatus{cs("a", end("Completed", 0, 0)), cs("b", run)}}}, "NotReady", 1, 0},
		{"init runs", v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}, {Name: "j"}}, Containers: make([]v1.Container, 1)},
			Status: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{cs("i", end("Completed", 0, 0)), cs("j", run)},
				ContainerStatuses: []v1.ContainerStatus{cs("a", wait("PodInitializing"))}}}, "Init:1/2", 0, 1},
		{"init fails", v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}},
			Status: v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{cs("i", wait("CrashLoopBackOff"))}}}, "Init:CrashLoopBackOff", 0, 0},
		{"init ended badly", v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}},
			Status: v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{cs("i", end("Error", 1, 0))}}}, "Init:Error", 0, 0},
		{"sidecar counts", v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "s", RestartPolicy: &always}}, Containers: make([]v1.Container, 1)},
			Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: initialized, InitContainerStatuses: []v1.ContainerStatus{cs("s", run)},
				ContainerStatuses: []v1.ContainerStatus{cs("a", run)}}}, "Running", 2, 2},
		{"sidecar not started", with(side, []v1.ContainerStatus{unstarted(cs("s", run))}, nil, cs("a", wait("PodInitializing"))), "Init:0/1", 0, 2},
		{"sidecar crashes before the others", with(side, []v1.ContainerStatus{unstarted(cs("s", end("Error", 1, 0)))}, nil, cs("a", wait("PodInitializing"))), "Init:Error", 0, 2},
		{"all init containers completed, no container created", with([]v1.Container{{Name: "i"}}, []v1.ContainerStatus{cs("i", end("Completed", 0, 0))}, nil, cs("a", wait("PodInitializing"))), "PodInitializing", 0, 1},
		{"sidecar restarts beside a running one", with(side, []v1.ContainerStatus{unstarted(cs("s", wait("CrashLoopBackOff")))}, initialized, cs("a", run)), "Init:CrashLoopBackOff", 1, 2},
		{"sidecar started, not ready", with(side, []v1.ContainerStatus{unready(cs("s", run))}, initialized, cs("a", run)), "Running", 1, 2},
		{"sidecar ended well", with(side, []v1.ContainerStatus{cs("s", end("Completed", 0, 0))}, initialized, cs("a", end("Completed", 0, 0))), "Completed", 0, 2},
		{"one done, one failed", with(nil, nil, nil, cs("a", end("Completed", 0, 0)), cs("b", end("OOMKilled", 137, 0))), "OOMKilled", 0, 2},
		{"restarting all", with([]v1.Container{{Name: "i"}}, []v1.ContainerStatus{cs("i", wait("RestartingAllContainers"))}, initialized, cs("a", wait("RestartingAllContainers"))), "RestartingAllContainers", 0, 1},
		{"going", v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}, Status: v1.PodStatus{Phase: v1.PodRunning}}, "Terminating", 0, 0},
	}
	for _, tt := range tests {
		s := summarize(&tt.pod)
		if s.status != tt.status || s.ready != tt.ready || s.total != tt.want {
			t.Errorf("%s: got %s %d/%d, want %s %d/%d", tt.name, s.status, s.ready, s.total, tt.status, tt.ready, tt.want)
		}
	}
}
