package plan_test

import (
	"testing"

	"podd/agent/plan"
	"podd/internal/pod"
)

// settled is a pod at rest, with a bit of everything.
func settled() plan.Input {
	p := aPod(inits("a", "mesh!"), containers("web", "side"), with("web", livenessProbe, postStart), with("mesh", startupProbe))
	in := input(p, observed(ready(0), web("running", 0, 1), ctr("side", "running", 0, 0), ctr("mesh", "running", 0, 0), ctr("a", "exited 0", 0, 0)))
	in.Probes = pod.ProbeResults{"web": {ContainerID: "web-1", Live: pod.ProbeSucceeded}, "mesh": {ContainerID: "mesh-0", Startup: pod.ProbeSucceeded}}
	in.Memory = plan.Next(in).Memory
	return in
}

// A node full of pods at rest must not pay for decisions that change nothing.
func TestADecisionAboutAPodAtRestIsCheap(t *testing.T) {
	in := settled()
	if got := describe(plan.Next(in)); got != "-" {
		t.Fatalf("not at rest: %s", got)
	}
	if n := testing.AllocsPerRun(100, func() { plan.Next(in) }); n > 2 {
		t.Errorf("a decision that changes nothing makes %v allocations, want 2 at most", n)
	}
}

func BenchmarkNextAtRest(b *testing.B) {
	in := settled()
	b.ReportAllocs()
	for b.Loop() {
		plan.Next(in)
	}
}
