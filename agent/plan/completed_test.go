package plan_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestAPodThatIsOverStaysOver whatever becomes of the runtime's records.
func TestAPodThatIsOverStaysOver(t *testing.T) {
	three := aPod(policy(v1.RestartPolicyOnFailure), inits("one", "mesh!"), containers("web", "side"))
	rules := aPod(policy(v1.RestartPolicyNever), with("web", rule(v1.ContainerRestartRuleActionRestartAllContainers, 42)))
	late := aPod(policy(v1.RestartPolicyNever), func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(60)) })
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		seen pod.Observed
		want string
	}{
		{"all is there", aPod(policy(v1.RestartPolicyNever)), observed(dead(0), web("exited 0", 0, 0)), "-"},
		{"its container was removed", aPod(policy(v1.RestartPolicyNever)), observed(dead(0)), "-"},
		{"and its sandbox", aPod(policy(v1.RestartPolicyOnFailure)), observed(), "-"},
		{"some of its containers were removed", three, observed(dead(0), ctr("one", "exited 0", 0, 0), ctr("side", "exited 0", 0, 0)), "-"},
		{"the one that failed is left", three, observed(dead(0), web("exited 1", 0, 0)), "-"},
		{"its sandbox is still there", three, observed(ready(0), ctr("mesh", "running", 0, 0)), "stop mesh-0, stop-sandbox s0"},
		{"a create that was thought lost", three, observed(ready(4), dead(0), web("running", 4, 3)), "stop web-3, stop-sandbox s4"},
		{"never started", three, observed(dead(0), web("created", 0, 3)), "remove web-3"},
		{"in an unknown state", three, observed(dead(0), web("unknown", 0, 0)), "stop web-0"},
		{"a rule that speaks of all", rules, observed(dead(0), web("exited 42", 0, 0)), "-"},
		{"its deadline is over, too", late, observed(dead(0)), "-"},
		{"restarted always, by a newer spec", aPod(), observed(dead(0), web("exited 0", 0, 0)), "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.pod, tc.seen)
			in.Completed, in.StartTime = true, noon.Add(-1e6)
			step := plan.Next(in)
			if got := describe(step); got != tc.want || !step.Completed || step.End != nil || len(step.Waiting) > 0 || step.Phase != pod.PhaseRunning {
				t.Errorf("got  %s, %+v\nwant %s, and the pod over", got, step, tc.want)
			}
			if step.Finished != (len(step.Stop)+len(step.StopSandboxes) == 0) {
				t.Errorf("got finished %v with %s", step.Finished, describe(step))
			}
		})
	}
	in := input(aPod(policy(v1.RestartPolicyNever)), observed())
	if step := plan.Next(in); step.Completed || !step.CreateSandbox {
		t.Errorf("not over: got %+v, want a sandbox", step)
	}
}
