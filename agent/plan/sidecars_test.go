package plan_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestSidecars walks the states of a pod with a sidecar before and after an init
// container: mesh!, a, logs!, then web.
func TestSidecars(t *testing.T) {
	mesh := func(state string) pod.Container { return ctr("mesh", state, 0, 0) }
	logs := func(state string) pod.Container { return ctr("logs", state, 0, 0) }
	a := ctr("a", "exited 0", 0, 0)
	for _, tc := range []struct {
		name string
		seen pod.Observed
		want string
	}{
		{"none made", observed(ready(0)), "create mesh-0"},
		{"first created", observed(ready(0), mesh("created")), "start mesh-0"},
		{"first runs", observed(ready(0), mesh("running")), "create a-0"},
		{"first ended before anything else was made", observed(ready(0), mesh("exited 0")), "create mesh-1"},
		{"first lost", observed(ready(0), mesh("unknown")), "stop mesh-0"},
		{"init runs beside it", observed(ready(0), ctr("a", "running", 0, 0), mesh("running")), "-"},
		{"first ended while init runs", observed(ready(0), ctr("a", "running", 0, 0), mesh("exited 1")), "create mesh-1"},
		{"first is gone while init runs", observed(ready(0), ctr("a", "running", 0, 0)), "create mesh-0"},
		{"init completed", observed(ready(0), a, mesh("running")), "create logs-0"},
		{"init completed, first ended", observed(ready(0), a, mesh("exited 1")), "create mesh-1, create logs-0"},
		{"second ended before web was made", observed(ready(0), logs("exited 1"), a, mesh("running")), "create logs-1"},
		{"both run", observed(ready(0), logs("running"), a, mesh("running")), "create web-0"},
		{"both run, the init container's record is gone", observed(ready(0), logs("running"), mesh("running")), "create web-0"},
		{"all run", observed(ready(0), web("running", 0, 0), logs("running"), a, mesh("running")), "-"},
		{"all run, one ended", observed(ready(0), web("running", 0, 0), logs("exited 0"), a, mesh("running")), "create logs-1"},
		{"all run, one is gone", observed(ready(0), web("running", 0, 0), logs("running"), a), "create mesh-0"},
		{"web ended", observed(ready(0), web("exited 0", 0, 0), logs("running"), a, mesh("running")),
			"stop logs-0, stop mesh-0 after logs-0, stop-sandbox s0"},
		{"web failed", observed(ready(0), web("exited 1", 0, 0), logs("running"), a, mesh("running")),
			"stop logs-0, stop mesh-0 after logs-0, stop-sandbox s0"},
		{"web ended, so had a sidecar", observed(ready(0), web("exited 0", 0, 0), logs("exited 1"), a, mesh("running")), "stop mesh-0, stop-sandbox s0"},
		{"everything ended", observed(dead(0), web("exited 0", 0, 0), logs("exited 137"), a, mesh("exited 2")), "-"},
		{"init failed beside the first", observed(ready(0), ctr("a", "exited 1", 0, 0), mesh("running")), "stop mesh-0, stop-sandbox s0"},
		{"new sandbox, nothing regular had run", observed(ready(1), dead(0), a, mesh("exited 137")), "create mesh-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := aPod(inits("mesh!", "a", "logs!"), policy(v1.RestartPolicyNever))
			if got := describe(plan.Next(input(p, tc.seen))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestASidecarIsWaitedForUntilItHasStarted: startup probe and postStart hook, and
// neither readiness nor liveness.
func TestASidecarIsWaitedForUntilItHasStarted(t *testing.T) {
	const next = "create web-0"
	for _, tc := range []struct {
		name   string
		with   []func(*v1.Container)
		probes pod.Probes
		hook   pod.HookState
		want   string
	}{
		{"neither", nil, pod.Probes{}, pod.HookNone, next},
		{"not ready", nil, pod.Probes{Ready: pod.ProbeFailed}, pod.HookNone, next},
		{"liveness not known yet", []func(*v1.Container){livenessProbe}, pod.Probes{}, pod.HookNone, next},
		{"startup probe not run yet", []func(*v1.Container){startupProbe}, pod.Probes{}, pod.HookNone, "-"},
		{"startup probe passed", []func(*v1.Container){startupProbe}, pod.Probes{Startup: pod.ProbeSucceeded}, pod.HookNone, next},
		{"startup probe failed", []func(*v1.Container){startupProbe}, pod.Probes{Startup: pod.ProbeFailed}, pod.HookNone, "stop mesh-0"},
		{"the hook runs", []func(*v1.Container){postStart}, pod.Probes{}, pod.HookRunning, "-"},
		{"the hook has completed", []func(*v1.Container){postStart}, pod.Probes{}, pod.HookSucceeded, next},
		{"an earlier podd had run it", []func(*v1.Container){postStart}, pod.Probes{}, pod.HookNone, next},
		{"the hook failed", []func(*v1.Container){postStart}, pod.Probes{}, pod.HookFailed, "stop mesh-0"},
		{"hook completed, startup probe not", []func(*v1.Container){postStart, startupProbe}, pod.Probes{}, pod.HookSucceeded, "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(aPod(inits("mesh!"), with("mesh", tc.with...)), observed(ready(0), ctr("mesh", "running", 0, 0)))
			tc.probes.ContainerID = "mesh-0"
			in.Probes = pod.ProbeResults{"mesh": tc.probes}
			in.PostStart = map[string]pod.Hook{"mesh-0": {State: tc.hook}}
			if got := describe(plan.Next(in)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			in.Probes["mesh"] = pod.Probes{ContainerID: "another", Startup: pod.ProbeFailed}
			if got := describe(plan.Next(in)); tc.with == nil && got != next {
				t.Errorf("with another container's results: got %s, want %s", got, next)
			}
		})
	}
}

// A sidecar that is restarted holds up nothing that has begun.
func TestARestartedSidecarDoesNotHoldUpTheInitialized(t *testing.T) {
	p := aPod(inits("mesh!"), containers("web", "side"), with("mesh", startupProbe, postStart))
	in := input(p, observed(ready(0), ctr("mesh", "running", 0, 1), web("running", 0, 0), ctr("side", "exited 1", 0, 0)))
	in.PostStart = map[string]pod.Hook{"mesh-1": {State: pod.HookRunning}}
	if got, want := describe(plan.Next(in)), "create side-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestASidecarWaitsInItsBackOff(t *testing.T) {
	w := newWorld(aPod(inits("mesh!"), policy(v1.RestartPolicyNever)))
	w.steps(t)
	for range 2 {
		w.in.Now = w.in.Now.Add(time.Second)
		w.exits("mesh", 0)
		w.act(t)
	}
	step := plan.Next(w.in)
	if got, want := describe(step), "wake 12s"; got != want || waits(step) != "mesh=CrashLoopBackOff" {
		t.Errorf("got %s, %s; want %s, 10s after its end, and mesh in its back-off", got, waits(step), want)
	}
	if !w.running("web") {
		t.Errorf("web does not run beside it")
	}
}

func TestEphemeralContainersStartOnce(t *testing.T) {
	looker := func(state string, sandbox int) pod.Container { return ctr("looker", state, sandbox, 0) }
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		seen pod.Observed
		want string
	}{
		{"beside a running pod", aPod(), observed(ready(0), web("running", 0, 0)), "create looker-0"},
		{"before the pod is initialized", aPod(inits("a")), observed(ready(0), ctr("a", "running", 0, 0)), "create looker-0"},
		{"first of all", aPod(), observed(ready(0)), "create looker-0, create web-0"},
		{"created and not started", aPod(), observed(ready(0), web("running", 0, 0), looker("created", 0)), "start looker-0"},
		{"runs", aPod(), observed(ready(0), web("running", 0, 0), looker("running", 0)), "-"},
		{"ended", aPod(), observed(ready(0), web("running", 0, 0), looker("exited 0", 0)), "-"},
		{"failed", aPod(), observed(ready(0), web("running", 0, 0), looker("exited 1", 0)), "-"},
		{"ended with an earlier sandbox", aPod(), observed(ready(1), dead(0), web("running", 1, 1), looker("exited 1", 0)), "-"},
		{"lost", aPod(), observed(ready(0), web("running", 0, 0), looker("unknown", 0)), "-"},
		{"does not keep its pod", aPod(policy(v1.RestartPolicyNever)), observed(ready(0), web("exited 0", 0, 0), looker("running", 0)),
			"stop looker-0, stop-sandbox s0"},
		{"comes too late", aPod(policy(v1.RestartPolicyNever)), observed(dead(0), web("exited 0", 0, 0)), "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ephemerals("looker")(tc.pod)
			if got := describe(plan.Next(input(tc.pod, tc.seen))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestWhatAPostStartHookHolds: those that start with one that has a hook wait for
// it, and a container whose hook failed comes last.
func TestWhatAPostStartHookHolds(t *testing.T) {
	three := aPod(containers("web", "side", "third"), with("side", postStart))
	for name, c := range map[string]struct {
		p      *v1.Pod
		memory plan.Memory
		want   string
	}{
		"no hook":                {aPod(containers("web", "side")), plan.Memory{}, "web side"},
		"a hook":                 {three, plan.Memory{}, "web side!"},
		"one that failed before": {three, plan.Memory{}.Failed("side", "", pod.Waiting{Reason: pod.ReasonPostStartHookError}, noon.Add(-time.Minute)), "web third side!"},
		"one that could not start before, for another reason": {three, plan.Memory{}.Failed("side", "", pod.Waiting{Reason: "ErrImagePull"}, noon.Add(-time.Minute)), "web side! third"},
		"two hooks": {aPod(containers("web", "side"), with("web", postStart), with("side", postStart)), plan.Memory{}, "web!"},
	} {
		in := input(c.p, observed(ready(0)))
		in.Memory = c.memory
		var got []string
		for _, st := range plan.Next(in).Start {
			if got = append(got, st.Container.Name); st.PostStart {
				got[len(got)-1] += "!"
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %v, want %q", name, got, c.want)
		}
	}
}
