package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestPhaseByPolicyAndState walks every restart policy against every state that
// one container, or two, can be in. The expectations are the kubelet's getPhase.
func TestPhaseByPolicyAndState(t *testing.T) {
	lost := []option{with("a", unknown(0))}
	oomExitsWith0 := exited(0, 0, 2)
	oomExitsWith0.Reason = "OOMKilled"
	tests := []struct {
		name                     string
		opts                     []option
		always, onFailure, never v1.PodPhase
	}{
		{"nothing made", []option{noSandbox(), with("a")}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"sandbox only", []option{with("a")}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"created", []option{with("a", created(0))}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"running", []option{with("a", running(0, 2))}, v1.PodRunning, v1.PodRunning, v1.PodRunning},
		{"exit 0", []option{with("a", exited(0, 0, 5))}, v1.PodRunning, v1.PodSucceeded, v1.PodSucceeded},
		{"exit 1", []option{with("a", exited(0, 1, 5))}, v1.PodRunning, v1.PodRunning, v1.PodFailed},
		{"unknown, never seen running", lost, v1.PodPending, v1.PodPending, v1.PodPending},
		{"backing off", []option{with("a", exited(3, 1, 5)), waits("a", "CrashLoopBackOff")}, v1.PodRunning, v1.PodRunning, v1.PodFailed},
		{"second one created", []option{with("a", created(1), exited(0, 1, 5))}, v1.PodRunning, v1.PodRunning, v1.PodFailed},
		{"pull fails", []option{with("a"), waits("a", "ErrImagePull")}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"one of two runs", []option{with("a", running(0, 2)), with("b", exited(0, 1, 5))}, v1.PodRunning, v1.PodRunning, v1.PodRunning},
		{"one of two lost", []option{with("a", running(0, 2)), with("b", unknown(0))}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"one of two not made", []option{with("a", running(0, 2)), with("b")}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"exit 0 and 0", []option{with("a", exited(0, 0, 5)), with("b", exited(0, 0, 6))}, v1.PodRunning, v1.PodSucceeded, v1.PodSucceeded},
		{"exit 0 and 1", []option{with("a", exited(0, 0, 5)), with("b", exited(0, 1, 6))}, v1.PodRunning, v1.PodRunning, v1.PodFailed},
		{"init runs", []option{withInit("i", running(0, 2)), with("a")}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"init failed", []option{withInit("i", exited(0, 1, 2)), with("a")}, v1.PodPending, v1.PodPending, v1.PodFailed},
		{"init OOM-killed with code 0", []option{withInit("i", oomExitsWith0), with("a")}, v1.PodPending, v1.PodPending, v1.PodFailed},
		{"init completed", []option{withInit("i", exited(0, 0, 2)), with("a", running(0, 3))}, v1.PodRunning, v1.PodRunning, v1.PodRunning},
		{"init record collected", []option{withInit("i"), with("a", running(0, 3))}, v1.PodRunning, v1.PodRunning, v1.PodRunning},
		{"sidecar up, main not made", []option{withSidecar("s", running(0, 2)), with("a")}, v1.PodPending, v1.PodPending, v1.PodPending},
		{"sidecar still up, main done", []option{withSidecar("s", running(0, 2)), with("a", exited(0, 0, 5))}, v1.PodRunning, v1.PodRunning, v1.PodRunning},
		{"sidecar ended, main done", []option{withSidecar("s", exited(0, 137, 6)), with("a", exited(0, 0, 5))}, v1.PodRunning, v1.PodSucceeded, v1.PodSucceeded},
	}
	for _, tt := range tests {
		for p, want := range map[v1.RestartPolicy]v1.PodPhase{always: tt.always, onFailure: tt.onFailure, never: tt.never} {
			got := compute(aScene(append([]option{policy(p)}, tt.opts...)...), v1.PodStatus{})
			if got.Phase != want {
				t.Errorf("%s under %s: got %s, want %s", tt.name, p, got.Phase, want)
			}
		}
	}
}

// A container that the runtime lost sight of has ended as far as anybody can
// know, or never ran: the pod is Running beside another that runs only in the
// first case.
func TestPhaseWithAContainerThatTheRuntimeLostSightOf(t *testing.T) {
	both := func(b pod.Container) []option {
		return []option{with("a", running(0, 2)), with("b", b)}
	}
	for _, tc := range []struct {
		before pod.Container
		want   v1.PodPhase
	}{
		{running(0, 2), v1.PodRunning},
		{created(0), v1.PodPending},
	} {
		before := compute(aScene(both(tc.before)...), v1.PodStatus{})
		s := compute(aScene(both(unknown(0))...), before)
		if s.Phase != tc.want {
			t.Errorf("it was %v before: got %s, want %s", tc.before.State, s.Phase, tc.want)
		}
		if ready := condition(s.Conditions, v1.PodReady); ready.Status != v1.ConditionFalse {
			t.Errorf("it was %v before: got Ready %s, want False", tc.before.State, ready.Status)
		}
	}
}

// TestPhaseOfStoppedPod: what is left when a worker stopped everything.
func TestPhaseOfStoppedPod(t *testing.T) {
	tests := []struct {
		name  string
		opts  []option
		phase v1.PodPhase
	}{
		{"api, Always, exit 0", []option{source(pod.SourceAPIServer), with("a", exited(0, 0, 5))}, v1.PodSucceeded},
		{"api, Always, exit 137", []option{source(pod.SourceAPIServer), with("a", exited(0, 137, 5))}, v1.PodFailed},
		{"api, never made", []option{source(pod.SourceAPIServer), with("a")}, v1.PodFailed},
		{"api, init never completed", []option{source(pod.SourceAPIServer), withInit("i"), with("a")}, v1.PodFailed},
		{"static, Always, exit 0", []option{with("a", exited(0, 0, 5))}, v1.PodRunning},
		{"static, Never, exit 0", []option{policy(never), with("a", exited(0, 0, 5))}, v1.PodSucceeded},
	}
	for _, tt := range tests {
		got := compute(aScene(append(tt.opts, phase(pod.PhaseTerminated))...), v1.PodStatus{})
		if got.Phase != tt.phase {
			t.Errorf("%s: got %s, want %s", tt.name, got.Phase, tt.phase)
		}
		for _, cs := range got.ContainerStatuses {
			if tt.name != "api, init never completed" && cs.State.Terminated == nil {
				t.Errorf("%s: container %s of a terminated pod: got %+v, want terminated", tt.name, cs.Name, cs.State)
			}
		}
	}
}

func failed(reason string) option {
	return func(s *scene) { s.Failed, s.Reason, s.Message = true, reason, "Pod was active too long" }
}

func TestTerminalPhaseWaitsForTheLastContainer(t *testing.T) {
	before := compute(aScene(with("a", running(0, 2))), v1.PodStatus{})
	still := compute(aScene(failed("DeadlineExceeded"), with("a", running(0, 2))), before)
	if still.Phase != v1.PodRunning || still.Reason != "" {
		t.Errorf("while a container runs: got %s %q, want Running without a reason", still.Phase, still.Reason)
	}
	gone := compute(aScene(failed("DeadlineExceeded"), with("a", exited(0, 137, 9))), still)
	if gone.Phase != v1.PodFailed || gone.Reason != "DeadlineExceeded" || gone.Message != "Pod was active too long" {
		t.Errorf("when it ended: got %s %q %q, want Failed DeadlineExceeded with its message", gone.Phase, gone.Reason, gone.Message)
	}
	if c := condition(gone.Conditions, v1.PodReady); c.Status != v1.ConditionFalse || c.Reason != ReasonPodFailed {
		t.Errorf("Ready of a failed pod: got %s %s, want False PodFailed", c.Status, c.Reason)
	}
	after := compute(aScene(with("a", running(1, 20))), gone)
	if after.Phase != v1.PodFailed || after.Reason != "DeadlineExceeded" {
		t.Errorf("after the end: got %s %q, want it to stay Failed DeadlineExceeded", after.Phase, after.Reason)
	}
}

func TestRejectedPodFailsBeforeAnythingWasMade(t *testing.T) {
	got := compute(aScene(noSandbox(), failed("HostPortConflict"), with("a")), v1.PodStatus{})
	if got.Phase != v1.PodFailed || got.Reason != "HostPortConflict" {
		t.Errorf("got %s %q, want Failed HostPortConflict", got.Phase, got.Reason)
	}
}

// A successor follows whatever the exit code is: a terminal phase would be final,
// and the pod runs on.
func TestPhaseWhileAStoppedContainerIsStartedAnew(t *testing.T) {
	for _, p := range []v1.RestartPolicy{v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
		r := aScene(policy(p), with("a", exited(0, 0, 5)))
		r.WillRestart = map[string]bool{"a-0": true}
		if got := compute(r, v1.PodStatus{Phase: v1.PodRunning}).Phase; got != v1.PodRunning {
			t.Errorf("%s: got %s, want Running", p, got)
		}
		r.WillRestart = map[string]bool{"a-7": true}
		if got := compute(r, v1.PodStatus{Phase: v1.PodRunning}).Phase; got != v1.PodSucceeded {
			t.Errorf("%s, one that is no more: got %s, want Succeeded", p, got)
		}
	}
}
