package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

func restartAll(code int32) func(*v1.Container) {
	return rule(v1.ContainerRestartRuleActionRestartAllContainers, code)
}

// resetPod is a pod whose web has all containers restarted when it exits 42.
func resetPod(opts ...func(*v1.Pod)) *v1.Pod {
	return aPod(append([]func(*v1.Pod){inits("a", "mesh!"), containers("web", "side"), policy(v1.RestartPolicyNever), with("web", restartAll(42))}, opts...)...)
}

// started brings a reset pod to where everything runs.
func started(t *testing.T, p *v1.Pod) *world {
	t.Helper()
	w := newWorld(p)
	w.settle(t)
	w.exits("a", 0)
	w.settle(t)
	if !w.running("web") || !w.running("side") || !w.running("mesh") {
		t.Fatalf("not started: %+v", w.in.Observed)
	}
	w.in.Now = w.in.Now.Add(time.Minute)
	return w
}

// TestRestartAllContainers: everything is stopped in order, and starts anew in
// the same sandbox, init containers included; restart counts go on (KEP-5532).
func TestRestartAllContainers(t *testing.T) {
	w := started(t, resetPod(with("side", preStop)))
	sandbox := w.in.Observed.Sandboxes[0].ID
	w.exits("web", 42)
	step := w.act(t)
	if got, want := w.named(step), "stop side, stop mesh after side"; got != want || !step.RestartingAll {
		t.Errorf("got %s (%v), want %s", got, step.RestartingAll, want)
	}
	for _, st := range step.Stop {
		if st.Grace != 2*time.Second || st.PreStop != nil || st.Message != "killing" {
			t.Errorf("got %+v; want 2 s, no hook, and the kubelet's word", st)
		}
	}
	if step = w.act(t); len(step.RemoveContainers) != 3 || !step.RestartingAll {
		t.Errorf("got %s, want all but web removed", describe(step))
	}
	step = w.act(t)
	if len(step.RemoveContainers) != 1 || !step.RestartingAll {
		t.Errorf("got %s, want web removed last", describe(step))
	}
	if got, want := waits(step), "a=RestartingAllContainers mesh=RestartingAllContainers side=RestartingAllContainers"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if step = plan.Next(w.in); step.RestartingAll {
		t.Errorf("all is removed: still restarting")
	}
	if got, want := w.steps(t), "create a-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.exits("a", 0)
	if got, want := w.steps(t), "create mesh-1; create web-1, create side-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := w.in.Observed.Sandboxes; len(got) != 1 || got[0].ID != sandbox {
		t.Errorf("got sandboxes %v, want %s alone", got, sandbox)
	}
}

// A podd that dies at any point of it goes on where the other was.
func TestRestartAllContainersSurvivesARestartOfPodd(t *testing.T) {
	for after := range 5 {
		w := started(t, resetPod())
		w.exits("web", 42)
		for range after {
			w.act(t)
		}
		w.crash()
		w.settle(t)
		w.exits("a", 0)
		w.settle(t)
		for _, name := range []string{"web", "side", "mesh"} {
			if c := w.latest(name); !w.running(name) || c.RestartCount != 1 {
				t.Errorf("a crash after %d steps: got %+v, want %s restarted once", after, c, name)
			}
		}
	}
}

func TestWhoseEndRestartsAllContainers(t *testing.T) {
	one := func(name, state string) pod.Container { return ctr(name, state, 0, 0) }
	at := func(c pod.Container, before time.Duration) pod.Container {
		c.FinishedAt = noon.Add(-before)
		return c
	}
	meshRule := aPod(inits("mesh!"), containers("web"), policy(v1.RestartPolicyNever), with("mesh", func(c *v1.Container) { restartAll(42)(c) }))
	initRule := aPod(inits("a"), policy(v1.RestartPolicyNever), with("a", restartAll(42)))
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		seen pod.Observed
		want string
	}{
		{"an init container's", initRule, observed(ready(0), one("a", "exited 42")), "remove a-0"},
		{"an init container's with another code", initRule, observed(ready(0), one("a", "exited 1")), "stop-sandbox s0"},
		{"a sidecar's", meshRule, observed(ready(0), one("web", "running"), one("mesh", "exited 42")), "stop web-0"},
		{"a sidecar's, and what it had stopped is done", meshRule,
			observed(ready(0), at(one("web", "exited 137"), 0), at(one("mesh", "exited 42"), time.Second)), "remove web-0"},
		{"a sidecar's at the end of its pod", meshRule,
			observed(ready(0), at(one("web", "exited 0"), time.Second), at(one("mesh", "exited 42"), 0)), "stop-sandbox s0"},
		{"one that has a successor", resetPod(inits()), observed(ready(0), ctr("web", "running", 0, 1), one("web", "exited 42"), one("side", "running"), one("mesh", "running")), "-"},
		{"with the sandbox dead", resetPod(), observed(dead(0), one("web", "exited 42"), one("side", "exited 137"), one("mesh", "exited 137"), one("a", "exited 0")),
			"remove side-0, remove mesh-0, remove a-0"},
		{"an ephemeral container looks on", resetPod(ephemerals("looker")), observed(ready(0), one("looker", "running"), one("web", "exited 42")), "remove web-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(plan.Next(input(tc.pod, tc.seen))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// The container that asked for it waits like any that crashes, although nothing
// is left of it in the runtime: a pod that does so as it starts does not keep
// its node busy.
func TestRestartAllContainersBacksOff(t *testing.T) {
	w := newWorld(aPod(containers("web", "side"), with("web", restartAll(42))))
	for n, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		w.runUntil(t)
		w.exits("web", 42)
		for !w.running("side") || w.latest("web") != nil && !w.running("web") {
			w.act(t)
		}
		if got := held(t, w); !w.running("web") && got != want || w.running("web") && want != 0 {
			t.Errorf("end %d: held for %v, want %v", n+1, got, want)
		}
		if step := plan.Next(w.in); want > 0 && (waits(step) != "web=CrashLoopBackOff" || len(step.BackOff) > 0) {
			t.Errorf("end %d: got %s, back-off of %v, want web in a back-off of which no record is left", n+1, waits(step), step.BackOff)
		}
	}
	w.in.Memory = w.in.Memory.BackOffReset()
	if got := held(t, w); got != 0 {
		t.Errorf("after a retry: held for %v, want a start at once", got)
	}
}

// TestARestartOfAllIsDated by its first step, until the next one that is none.
func TestARestartOfAllIsDated(t *testing.T) {
	p := aPod(containers("web", "side"), with("web", rule(v1.ContainerRestartRuleActionRestartAllContainers, 42)))
	in := input(p, observed(ready(0), web("exited 42", 0, 0), ctr("side", "running", 0, 0)))
	first := plan.Next(in)
	in.Memory, in.Now = first.Memory, noon.Add(time.Second)
	second := plan.Next(in)
	if !first.RestartingAll || !first.Memory.RestartingSince.Equal(noon) || !second.Memory.RestartingSince.Equal(noon) {
		t.Errorf("got %v, then %v; want noon", first.Memory.RestartingSince, second.Memory.RestartingSince)
	}
	in.Memory, in.Observed = second.Memory, observed(ready(0), web("running", 0, 1), ctr("side", "running", 0, 1))
	if after := plan.Next(in); after.RestartingAll || !after.Memory.RestartingSince.IsZero() {
		t.Errorf("afterwards: got %v", after.Memory.RestartingSince)
	}
}
