package plan_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestASandboxIsSaidToChangeOnceBeforeItsContainersAreStopped: upstream tells SandboxChanged,
// then Killing for each container.
func TestASandboxIsSaidToChangeOnceBeforeItsContainersAreStopped(t *testing.T) {
	type round struct {
		seen pod.Observed
		told bool
	}
	running, ended := observed(dead(0), web("running", 0, 0)), observed(dead(0), web("exited 137", 0, 0))
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		rounds []round
	}{
		"containers run in it": {aPod(), []round{{running, true}, {running, false}, {ended, false}, {ended, false}}},
		"nothing runs in it":   {aPod(), []round{{ended, true}, {ended, false}}},
		"the next one dies": {aPod(), []round{{running, true}, {ended, false},
			{observed(dead(1), dead(0), web("exited 137", 0, 0)), true}}},
		"a pod that has none yet":   {aPod(), []round{{observed(), false}}},
		"a pod that does not go on": {aPod(policy(v1.RestartPolicyNever)), []round{{running, false}, {ended, false}}},
		"a job that goes on":        {aPod(policy(v1.RestartPolicyOnFailure)), []round{{running, true}, {ended, false}}},
	} {
		var memory plan.Memory
		for i, r := range tc.rounds {
			in := input(tc.pod, r.seen)
			in.Memory = memory
			step := plan.Next(in)
			memory = step.Memory
			if step.SandboxChanged != r.told {
				t.Errorf("%s, round %d: told %v, want %v (%s)", name, i+1, step.SandboxChanged, r.told, describe(step))
			}
		}
	}
}
