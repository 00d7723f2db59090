package plan_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestInitContainers walks the states of a pod with init containers a and b
// under each restart policy. The expectations are upstream's
// computeInitContainerActions, but for what a former sandbox left.
func TestInitContainers(t *testing.T) {
	a, b := func(state string) pod.Container { return ctr("a", state, 0, 0) }, func(state string) pod.Container { return ctr("b", state, 0, 0) }
	for _, tc := range []struct {
		name                     string
		seen                     pod.Observed
		always, onFailure, never string
	}{
		{"none made", observed(ready(0)), "create a-0", "create a-0", "create a-0"},
		{"first created", observed(ready(0), a("created")), "start a-0", "start a-0", "start a-0"},
		{"first runs", observed(ready(0), a("running")), "-", "-", "-"},
		{"first succeeded", observed(ready(0), a("exited 0")), "create b-0", "create b-0", "create b-0"},
		{"first failed", observed(ready(0), a("exited 1")), "create a-1", "create a-1", "stop-sandbox s0"},
		{"first was OOM-killed and ended with 0", observed(ready(0), a("exited 0 OOMKilled")), "create a-1", "create a-1", "stop-sandbox s0"},
		{"first lost", observed(ready(0), a("unknown")), "stop a-0", "stop a-0", "stop a-0"},
		{"second runs", observed(ready(0), b("running"), a("exited 0")), "-", "-", "-"},
		{"second runs, the first's record is gone", observed(ready(0), b("running")), "-", "-", "-"},
		{"second failed", observed(ready(0), b("exited 1"), a("exited 0")), "create b-1", "create b-1", "stop-sandbox s0"},
		{"second failed, the first's record is gone", observed(ready(0), b("exited 1")), "create b-1", "create b-1", "stop-sandbox s0"},
		{"both succeeded", observed(ready(0), b("exited 0"), a("exited 0")), "create web-0", "create web-0", "create web-0"},
		{"the second's record is gone", observed(ready(0), a("exited 0")), "create b-0", "create b-0", "create b-0"},
		{"both succeeded, web runs", observed(ready(0), web("running", 0, 0), b("exited 0"), a("exited 0")), "-", "-", "-"},
		{"their records are gone, web runs", observed(ready(0), web("running", 0, 0)), "-", "-", "-"},
		{"their records are gone, web created", observed(ready(0), web("created", 0, 0)), "start web-0", "start web-0", "start web-0"},
		{"their records are gone, web failed", observed(ready(0), web("exited 1", 0, 0)), "create web-1", "create web-1", "stop-sandbox s0"},
		{"web succeeded", observed(ready(0), web("exited 0", 0, 0), b("exited 0")), "create web-1", "stop-sandbox s0", "stop-sandbox s0"},

		{"new sandbox", observed(ready(1), dead(0), b("exited 0"), a("exited 0")), "create a-1", "create a-1", "create a-1"},
		{"new sandbox, web had run", observed(ready(1), dead(0), web("exited 1", 0, 0), b("exited 0"), a("exited 0")),
			"create a-1", "create a-1", "stop-sandbox s1"},
		{"new sandbox, web had succeeded", observed(ready(1), dead(0), web("exited 0", 0, 0), b("exited 0"), a("exited 0")),
			"create a-1", "stop-sandbox s1", "stop-sandbox s1"},
		{"new sandbox, first succeeded in it", observed(ready(1), dead(0), ctr("a", "exited 0", 1, 1), web("exited 1", 0, 0), b("exited 0"), a("exited 0")),
			"create b-1, remove a-0", "create b-1, remove a-0", "stop-sandbox s1"},
		{"new sandbox, first had failed", observed(ready(1), dead(0), a("exited 1")), "create a-1", "create a-1", "stop-sandbox s1"},
		{"new sandbox, first was never started", observed(ready(1), dead(0), a("created")),
			"create a-1, remove a-0, remove s0", "create a-1, remove a-0, remove s0", "create a-1, remove a-0, remove s0"},

		{"no sandbox, first had failed", observed(dead(0), a("exited 1")), "release s0, sandbox 1", "release s0, sandbox 1", "-"},
		{"no sandbox, first had succeeded", observed(dead(0), a("exited 0")), "release s0, sandbox 1", "release s0, sandbox 1", "release s0, sandbox 1"},
		{"no sandbox, web had succeeded", observed(dead(0), web("exited 0", 0, 0), b("exited 0"), a("exited 0")), "release s0, sandbox 1", "-", "-"},
		{"no sandbox, web had failed", observed(dead(0), web("exited 1", 0, 0), b("exited 0"), a("exited 0")), "release s0, sandbox 1", "release s0, sandbox 1", "-"},
	} {
		for p, want := range map[v1.RestartPolicy]string{
			v1.RestartPolicyAlways: tc.always, v1.RestartPolicyOnFailure: tc.onFailure, v1.RestartPolicyNever: tc.never,
		} {
			t.Run(tc.name+"/"+string(p), func(t *testing.T) {
				step := plan.Next(input(aPod(inits("a", "b"), policy(p)), tc.seen))
				if got := describe(step); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		}
	}
}

func TestInitContainersHaveTheirOwnRestartPolicy(t *testing.T) {
	never, onFailure, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure, v1.RestartPolicyAlways
	restart := v1.ContainerRestartRuleActionRestart
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		code string
		want string
	}{
		{"Never in a pod that restarts", aPod(inits("a"), policy(always), with("a", ofItsOwn(never))), "exited 1", "stop-sandbox s0"},
		{"OnFailure in a pod that does not", aPod(inits("a"), policy(v1.RestartPolicyNever), with("a", ofItsOwn(onFailure))), "exited 1", "create a-1"},
		{"a rule restarts it", aPod(inits("a"), policy(v1.RestartPolicyNever), with("a", rule(restart, 3))), "exited 3", "create a-1"},
		{"a rule for another exit code", aPod(inits("a"), policy(v1.RestartPolicyNever), with("a", rule(restart, 3))), "exited 1", "stop-sandbox s0"},
		{"success is success, whatever the rules", aPod(inits("a"), with("a", rule(restart, 0))), "exited 0", "create web-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(plan.Next(input(tc.pod, observed(ready(0), ctr("a", tc.code, 0, 0))))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestAPodFromItsFirstSandboxToItsEnd plays the whole way, with everything that
// comes in an order.
func TestAPodFromItsFirstSandboxToItsEnd(t *testing.T) {
	w := newWorld(aPod(inits("a", "mesh!", "b", "logs!"), containers("web", "side"), with("mesh", startupProbe), policy(v1.RestartPolicyOnFailure)))
	for _, stage := range []struct {
		happens func()
		want    string
	}{
		{func() {}, "sandbox 0; create a-0"},
		{func() { w.exits("a", 1) }, "create a-1"},
		{func() { w.exits("a", 0) }, "create mesh-0"},
		{func() {}, ""},
		{func() { w.probe("mesh", pod.ProbeSucceeded, 0) }, "create b-0"},
		{func() { w.exits("mesh", 1) }, "create mesh-1"},
		{func() { w.exits("b", 0) }, "create logs-0; create web-0, create side-0"},
		{func() { w.exits("web", 0) }, ""},
		{func() { w.exits("logs", 0) }, "create logs-1"},
		{func() { w.exits("side", 2) }, "create side-1"},
		{func() { w.exits("side", 0) }, "stop logs, stop mesh after logs"},
	} {
		stage.happens()
		if got := w.steps(t); got != stage.want {
			t.Fatalf("got  %s\nwant %s", got, stage.want)
		}
	}
	if step := w.act(t); !step.Finished {
		t.Errorf("in the end: got %s, want the pod finished", describe(step))
	}
}
