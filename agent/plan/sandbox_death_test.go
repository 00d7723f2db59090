package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// Whoever stops a sandbox behind podd's back kills its containers, has the
// sandbox dead, and takes its network down: podd does not get in the way.
func TestASandboxThatSomebodyStops(t *testing.T) {
	killed := web("exited 137", 0, 0)
	killed.FinishedAt = noon
	for _, tc := range []struct {
		policy               v1.RestartPolicy
		killed, first, later string
	}{
		// A container that somebody killed is far more often alone in that: it is
		// restarted at once, in vain where its sandbox goes too.
		{v1.RestartPolicyAlways, "create web-1", "wake 400ms", "release s0, sandbox 1"},
		{v1.RestartPolicyNever, "wake 300ms", "-", "-"},
	} {
		in := input(aPod(policy(tc.policy)), observed(ready(0), web("running", 0, 0)))
		in.Memory = plan.Next(in).Memory
		in.Observed = observed(ready(0), killed)
		step := plan.Next(in)
		if got := describe(step); got != tc.killed {
			t.Errorf("%s, its container was killed: got %s, want %s", tc.policy, got, tc.killed)
		}
		in.Memory, in.Now = step.Memory, noon.Add(100*time.Millisecond)
		in.Observed = observed(dead(0), killed)
		if step = plan.Next(in); describe(step) != tc.first {
			t.Errorf("%s, it is dead: got %s, want %s", tc.policy, describe(step), tc.first)
		}
		in.Memory, in.Now = step.Memory, noon.Add(400*time.Millisecond)
		if got := describe(plan.Next(in)); got != tc.later {
			t.Errorf("%s, after that: got %s, want %s", tc.policy, got, tc.later)
		}
	}
	in := input(aPod(policy(v1.RestartPolicyNever)), observed(ready(0), killed))
	in.Now = noon.Add(300 * time.Millisecond)
	if got, want := describe(plan.Next(in)), "stop-sandbox s0"; got != want {
		t.Errorf("only the container was killed: got %s, want %s", got, want)
	}
	in = input(aPod(), observed(dead(0)))
	in.Memory.LastReadySandbox, in.Memory.SandboxDiedAt = "s0", noon.Add(time.Hour)
	if got, want := describe(plan.Next(in)), "release s0, sandbox 1"; got != want {
		t.Errorf("the clock was set back: got %s, want %s", got, want)
	}
}

// A pod that cannot begin again is lost only when the kill of a container is known
// not to be the beginning of its sandbox's end, which somebody else is at.
func TestAPodIsNotCalledLostWhileItsSandboxMayBeDying(t *testing.T) {
	p := aPod(policy(v1.RestartPolicyNever), inits("mesh!"), containers("web", "side"))
	killed := ctr("mesh", "exited 137", 1, 1)
	killed.FinishedAt = noon
	in := input(p, observed(ready(1), dead(0), killed, web("exited 0", 0, 0)))
	step := plan.Next(in)
	if got, want := describe(step), "wake 300ms"; got != want || step.End != nil {
		t.Errorf("just after the kill: got %s, end %+v, want %s and no end", got, step.End, want)
	}
	in.Memory, in.Now = step.Memory, noon.Add(300*time.Millisecond)
	step = plan.Next(in)
	if got, want := describe(step), "stop-sandbox s1"; got != want || step.End == nil || step.End.Reason != pod.ReasonSandboxLost {
		t.Errorf("after that: got %s, end %+v, want %s, %s", got, step.End, want, pod.ReasonSandboxLost)
	}
}
