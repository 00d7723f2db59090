package plan_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestAStartThatWasInterrupted: whether a container that never ran is started is decided by
// whether its start was heard to fail, and one that may have run has ended (ADR 0015).
func TestAStartThatWasInterrupted(t *testing.T) {
	failed := func(name string, neverRan bool) pod.Container {
		c := ctr(name, "exited 128 StartError", 0, 0)
		c.NeverRan = neverRan
		return c
	}
	never, once := aPod(policy(v1.RestartPolicyNever)), aPod(inits("a"), policy(v1.RestartPolicyNever))
	looked := aPod(ephemerals("look"))
	for _, tc := range []struct {
		name  string
		pod   *v1.Pod
		seen  pod.Observed
		begun map[string]string
		want  string
	}{
		{"it never ran", never, observed(ready(0), failed("web", true)), map[string]string{"web": "web-0"}, "create web-1"},
		{"it may have run", never, observed(ready(0), failed("web", false)), map[string]string{"web": "web-0"}, "stop-sandbox s0"},
		{"its failure was heard", never, observed(ready(0), failed("web", true)), nil, "stop-sandbox s0"},
		{"another's was not", never, observed(ready(0), failed("web", true)), map[string]string{"web": "web-7"}, "stop-sandbox s0"},
		{"an init container never ran", once, observed(ready(0), failed("a", true)), map[string]string{"a": "a-0"}, "create a-1"},
		{"an init container may have run", once, observed(ready(0), failed("a", false)), map[string]string{"a": "a-0"}, "stop-sandbox s0"},
		{"an ephemeral container never ran", looked, observed(ready(0), web("running", 0, 0), failed("look", true)), map[string]string{"look": "look-0"}, "create look-1"},
		{"an ephemeral container may have run", looked, observed(ready(0), web("running", 0, 0), failed("look", false)), map[string]string{"look": "look-0"}, "-"},
		{"it runs", never, observed(ready(0), web("running", 0, 0)), map[string]string{"web": "web-0"}, "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.pod, tc.seen)
			in.PendingStarts = tc.begun
			if got := describe(plan.Next(in)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestStartsThatAreNotTriedAgain says for which containers it matters how a start ends.
func TestStartsThatAreNotTriedAgain(t *testing.T) {
	never := v1.ContainerRestartPolicyNever
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"Always":                  {aPod(), false},
		"OnFailure":               {aPod(policy(v1.RestartPolicyOnFailure)), false},
		"Never":                   {aPod(policy(v1.RestartPolicyNever)), true},
		"Never of its own":        {aPod(with("web", ofItsOwn(never))), true},
		"an init container":       {aPod(inits("a"), policy(v1.RestartPolicyNever)), true},
		"a sidecar":               {aPod(inits("a!"), policy(v1.RestartPolicyNever)), false},
		"an init container again": {aPod(inits("a")), false},
	} {
		step := plan.Next(input(tc.pod, observed(ready(0))))
		if len(step.Start) != 1 || step.Start[0].NoRetry != tc.want {
			t.Errorf("%s: got %+v, want Once %v", name, step.Start, tc.want)
		}
	}
}
