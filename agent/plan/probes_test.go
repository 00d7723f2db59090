package plan_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestProbesThatFailStopContainers: the messages are the kubelet's.
func TestProbesThatFailStopContainers(t *testing.T) {
	live, startup := pod.Probes{Live: pod.ProbeFailed}, pod.Probes{Startup: pod.ProbeFailed}
	never, always := v1.RestartPolicyNever, v1.RestartPolicyAlways
	probes := with("web", livenessProbe, startupProbe)
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		probes pod.Probes
		want   string // the message; empty for none
	}{
		{"liveness", aPod(probes), live, "Container web failed liveness probe, will be restarted"},
		{"startup", aPod(probes), startup, "Container web failed startup probe, will be restarted"},
		{"both", aPod(probes), pod.Probes{Live: pod.ProbeFailed, Startup: pod.ProbeFailed}, "Container web failed liveness probe, will be restarted"},
		{"readiness", aPod(probes), pod.Probes{Ready: pod.ProbeFailed}, ""},
		{"succeed", aPod(probes), pod.Probes{Live: pod.ProbeSucceeded, Startup: pod.ProbeSucceeded}, ""},
		{"not known", aPod(probes), pod.Probes{}, ""},
		{"Never, beside another", aPod(containers("web", "side"), probes, policy(never)), live, "Container web failed liveness probe"},
		{"OnFailure", aPod(probes, policy(v1.RestartPolicyOnFailure)), live, "Container web failed liveness probe, will be restarted"},
		{"Never of its own, beside another", aPod(containers("web", "side"), probes, with("web", ofItsOwn(v1.ContainerRestartPolicyNever))), live,
			"Container web failed liveness probe"},
		{"OnFailure of its own", aPod(probes, policy(never), with("web", ofItsOwn(v1.ContainerRestartPolicyOnFailure))), live,
			"Container web failed liveness probe, will be restarted"},
		{"Never of its own, with a rule", aPod(containers("web", "side"), probes, policy(always), with("web", rule(v1.ContainerRestartRuleActionRestart, 137))), live,
			"Container web failed liveness probe"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.pod, observed(ready(0), web("running", 0, 0), ctr("side", "running", 0, 0)))
			if len(tc.pod.Spec.Containers) == 1 {
				in.Observed = observed(ready(0), web("running", 0, 0))
			}
			tc.probes.ContainerID = "web-0"
			in.Probes = pod.ProbeResults{"web": tc.probes}
			step := plan.Next(in)
			got := ""
			if len(step.Stop) > 0 {
				got = step.Stop[0].Message
			}
			if got != tc.want || len(step.Stop) > 0 != (tc.want != "") || len(step.Stop) > 0 && !step.Stop[0].Probe {
				t.Errorf("got %+v, want a stop for a probe with %q", step.Stop, tc.want)
			}
			in.Probes["web"] = pod.Probes{ContainerID: "web-7", Live: pod.ProbeFailed}
			if got := describe(plan.Next(in)); got != "-" {
				t.Errorf("results of another container: got %s, want -", got)
			}
		})
	}
}

// A failed probe of the last container that is not restarted is the end of the
// whole pod, which has its own words and its own grace period.
func TestAProbeThatFailsForGoodEndsThePod(t *testing.T) {
	never := policy(v1.RestartPolicyNever)
	probed := with("web", livenessProbe, within(3))
	two := containers("web", "side")
	mesh := ctr("mesh", "running", 0, 0)
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		side []any
		want string
	}{
		{"alone", aPod(never, probed), nil, "stop web-0, stop-sandbox s0"},
		{"beside a sidecar", aPod(inits("mesh!"), never, probed), []any{mesh}, "stop web-0, stop mesh-0 after web-0, stop-sandbox s0"},
		{"beside one that is done", aPod(two, never, probed), []any{ctr("side", "exited 1", 0, 0)}, "stop web-0, stop-sandbox s0"},
		{"beside one that runs", aPod(two, never, probed), []any{ctr("side", "running", 0, 0)}, "stop web-0"},
		{"beside one that is to start", aPod(two, never, probed), nil, "stop web-0"},
		{"beside one that restarts", aPod(two, probed, with("web", ofItsOwn(v1.ContainerRestartPolicyNever))), []any{ctr("side", "exited 1", 0, 0)}, "stop web-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.pod, observed(append([]any{ready(0), web("running", 0, 0)}, tc.side...)...))
			in.Probes = pod.ProbeResults{"web": {ContainerID: "web-0", Live: pod.ProbeFailed}}
			step := plan.Next(in)
			if got := describe(step); got != tc.want {
				t.Fatalf("got  %s\nwant %s", got, tc.want)
			}
			message, grace := "Container web failed liveness probe", 3*time.Second
			if len(step.StopSandboxes) > 0 {
				message, grace = "Stopping container web", 30*time.Second
			}
			if st := step.Stop[0]; st.Message != message || st.Grace != grace {
				t.Errorf("got %q in %v, want %q in %v", st.Message, st.Grace, message, grace)
			}
		})
	}
}

func TestProbesThatFailStopSidecars(t *testing.T) {
	for _, tc := range []struct {
		probes pod.Probes
		want   string
	}{
		{pod.Probes{Startup: pod.ProbeFailed}, "Init container mesh failed startup probe"},
		{pod.Probes{Startup: pod.ProbeSucceeded, Live: pod.ProbeFailed}, "Init container mesh failed liveness probe"},
		{pod.Probes{Startup: pod.ProbeFailed, Live: pod.ProbeFailed}, "Init container mesh failed startup probe"},
	} {
		for name, seen := range map[string]pod.Observed{
			"while it starts":  observed(ready(0), ctr("mesh", "running", 0, 0)),
			"while web runs":   observed(ready(0), web("running", 0, 0), ctr("mesh", "running", 0, 0)),
			"while web is due": observed(ready(0), web("exited 1", 0, 0), ctr("mesh", "running", 0, 0)),
		} {
			in := input(aPod(inits("mesh!"), with("mesh", livenessProbe, startupProbe)), seen)
			tc.probes.ContainerID = "mesh-0"
			in.Probes = pod.ProbeResults{"mesh": tc.probes}
			if step := plan.Next(in); describe(step) != "stop mesh-0" || step.Stop[0].Message != tc.want {
				t.Errorf("%s: got %s %+v, want stop mesh-0, %q", name, describe(step), step.Stop, tc.want)
			}
		}
	}
}

func TestGraceAfterAProbeIsTheProbesOwn(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []func(*v1.Pod)
		want time.Duration
	}{
		{"the pod's", []func(*v1.Pod){graceOf(20)}, 20 * time.Second},
		{"the probe's", []func(*v1.Pod){graceOf(20), with("web", within(5))}, 5 * time.Second},
		{"the probe's, longer", []func(*v1.Pod){graceOf(20), with("web", within(50))}, 50 * time.Second},
		{"the probe's, negative", []func(*v1.Pod){graceOf(20), with("web", within(-5))}, time.Second},
		{"the probe's, more than a duration holds", []func(*v1.Pod){graceOf(20), with("web", within(9999999999))}, pod.MaxInterval},
		{"of a pod that is being deleted", []func(*v1.Pod){graceOf(20), with("web", within(5)),
			func(p *v1.Pod) { p.DeletionGracePeriodSeconds = ptr(int64(9)) }}, 9 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(aPod(append([]func(*v1.Pod){with("web", livenessProbe, preStop)}, tc.opts...)...), observed(ready(0), web("running", 0, 0)))
			in.Probes = pod.ProbeResults{"web": {ContainerID: "web-0", Live: pod.ProbeFailed}}
			step := plan.Next(in)
			if len(step.Stop) != 1 || step.Stop[0].Grace != tc.want || step.Stop[0].PreStop == nil {
				t.Errorf("got %+v, want a stop with grace %v and its hook", step.Stop, tc.want)
			}
		})
	}
}

// What a probe stopped is restarted whatever its exit code is; a policy Never
// leaves it, unless its rules want that exit code.
func TestWhatAProbeStopped(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		code int32
		want string
	}{
		{"Always", aPod(), 0, "create web-1"},
		{"OnFailure, success", aPod(policy(v1.RestartPolicyOnFailure)), 0, "create web-1"},
		{"Never, failure", aPod(policy(v1.RestartPolicyNever)), 137, "stop-sandbox s0"},
		{"Never, a rule", aPod(policy(v1.RestartPolicyNever), with("web", rule(v1.ContainerRestartRuleActionRestart, 137))), 137, "create web-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			with("web", livenessProbe)(tc.pod)
			in := input(tc.pod, observed(ready(0), web("running", 0, 0)))
			in.Probes = pod.ProbeResults{"web": {ContainerID: "web-0", Live: pod.ProbeFailed}}
			in.Memory = plan.Next(in).Memory
			dead := web("exited 0", 0, 0)
			dead.ExitCode = tc.code
			in.Observed = observed(ready(0), dead)
			step := plan.Next(in)
			if got := describe(step); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if step.Memory.ForcedRestarts["web"].ID == "" {
				return
			}
			in.Memory, in.Observed = step.Memory, observed(ready(0), web("running", 0, 1), dead)
			if step = plan.Next(in); len(step.Memory.ForcedRestarts) != 0 {
				t.Errorf("its successor runs, and it is still remembered: %v", step.Memory.ForcedRestarts)
			}
		})
	}
}

// TestTheWaitAfterProbesThatFail: as in the kubelet, a container that was well
// for longer than its wait is restarted at once, and the first stop is free.
func TestTheWaitAfterProbesThatFail(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		life time.Duration
		want []time.Duration
	}{
		{30 * s, []time.Duration{0, 0, 0, 0, 40 * s, 80 * s}},
		{s, []time.Duration{0, 0, 10 * s, 20 * s, 40 * s}},
		{11 * time.Minute, []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		w := newWorld(aPod(with("web", livenessProbe), policy(v1.RestartPolicyOnFailure)))
		for n, want := range tc.want {
			w.runUntil(t)
			w.in.Now = w.latest("web").StartedAt.Add(tc.life)
			w.probe("web", 0, pod.ProbeFailed)
			if step := w.act(t); len(step.Stop) != 1 {
				t.Fatalf("got %s, want a stop", describe(step))
			}
			if got := held(t, w); got != want {
				t.Errorf("life of %v, stop %d: held for %v, want %v", tc.life, n+1, got, want)
			}
		}
	}
}

func TestAContainerWithAnotherImageIsRestarted(t *testing.T) {
	hash := func(image string) string { return pod.ContainerHash(&v1.Container{Name: "web", Image: image}) }
	for _, tc := range []struct {
		name string
		hash string
		want string
	}{
		{"the same", hash(""), "-"},
		{"another", hash("web:1"), "stop web-0"},
		{"not known", "", "-"},
	} {
		for _, p := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
			c := web("running", 0, 0)
			c.Hash = tc.hash
			in := input(aPod(policy(p)), observed(ready(0), c))
			step := plan.Next(in)
			if got := describe(step); got != tc.want {
				t.Errorf("%s, %s: got %s, want %s", tc.name, p, got, tc.want)
				continue
			}
			if len(step.Stop) == 0 {
				continue
			}
			if got, want := step.Stop[0].Message, "Container web definition changed, will be restarted"; got != want || step.Stop[0].Probe {
				t.Errorf("got %q, want %q", got, want)
			}
			dead := web("exited 0", 0, 0)
			dead.Hash = tc.hash
			in.Memory, in.Observed = step.Memory, observed(ready(0), dead)
			if got := describe(plan.Next(in)); got != "create web-1" {
				t.Errorf("after it ended, %s: got %s, want create web-1", p, got)
			}
		}
	}
	mesh, a := ctr("mesh", "running", 0, 0), ctr("a", "running", 0, 0)
	mesh.Hash, a.Hash = "another", "another"
	step := plan.Next(input(aPod(inits("mesh!", "a")), observed(ready(0), a, mesh)))
	if got := describe(step); got != "stop mesh-0" || step.Stop[0].Message != "Init container mesh definition changed" {
		t.Errorf("got %s %+v; want the sidecar stopped and the init container left alone", got, step.Stop)
	}
}

// TestAPostStartHook holds up what comes after its container, and ends a
// container when it fails.
func TestAPostStartHook(t *testing.T) {
	three := func(opts ...func(*v1.Pod)) *v1.Pod {
		return aPod(append([]func(*v1.Pod){containers("web", "side", "third"), with("side", postStart)}, opts...)...)
	}
	webRuns, sideRuns := web("running", 0, 0), ctr("side", "running", 0, 0)
	for _, tc := range []struct {
		name string
		seen pod.Observed
		hook pod.HookState
		want string
	}{
		{"nothing runs", observed(ready(0)), pod.HookNone, "create web-0, create side-0"},
		{"it is under way", observed(ready(0), sideRuns, webRuns), pod.HookRunning, "-"},
		{"it is under way, and what comes before ended", observed(ready(0), sideRuns, web("exited 1", 0, 0)), pod.HookRunning, "create web-1"},
		{"it has completed", observed(ready(0), sideRuns, webRuns), pod.HookSucceeded, "create third-0"},
		{"an earlier podd had run it", observed(ready(0), sideRuns, webRuns), pod.HookNone, "create third-0"},
		{"it failed", observed(ready(0), sideRuns, webRuns), pod.HookFailed, "stop side-0"},
		{"its container ended meanwhile", observed(ready(0), ctr("side", "exited 1", 0, 0), webRuns), pod.HookRunning, "create side-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(three(), tc.seen)
			in.PostStart = map[string]pod.Hook{"side-0": {State: tc.hook}}
			if got := describe(plan.Next(in)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	in := input(three(), observed(ready(0), webRuns))
	in.Memory = plan.Memory{}.Awaiting("side", pod.Waiting{Reason: "ImagePullBackOff"})
	if got, want := describe(plan.Next(in)), "create side-0, create third-0"; got != want {
		t.Errorf("no image: got %s, want %s", got, want)
	}
}

func TestAPostStartHookThatFails(t *testing.T) {
	w := newWorld(aPod(with("web", postStart, preStop)))
	w.steps(t)
	w.hook("web", pod.HookFailed)
	step := plan.Next(w.in)
	if got, want := step.Stop[0].Message, "FailedPostStartHook"; got != want || step.Stop[0].PreStop == nil || step.Stop[0].Probe {
		t.Errorf("got %+v, want a stop that says %q, with its hook", step.Stop[0], want)
	}
	failed := pod.Waiting{Reason: "PostStartHookError", Message: "the hook's own words"}
	if step = w.act(t); step.Memory.Failures["web"].Waiting != failed {
		t.Errorf("got %v, want %v remembered", step.Memory.Failures, failed)
	}
	if again := w.in.Memory.Failures["web"]; again.Count != 1 {
		t.Errorf("counted %d times, want once", again.Count)
	}
	step = w.act(t)
	if describe(step) != "create web-1" || step.Waiting["web"] != failed {
		t.Errorf("when it has ended: got %s %v, want create web-1, which waited for %v", describe(step), step.Waiting, failed)
	}
	w.in.Now = w.in.Now.Add(time.Second)
	w.hook("web", pod.HookFailed)
	w.act(t)
	if step = plan.Next(w.in); len(step.Start) > 0 || step.Waiting["web"] != failed {
		t.Errorf("the second time: got %s %v, want it held back for %v", describe(step), step.Waiting, failed)
	}
	w.in.Now = step.WakeAt
	if step = plan.Next(w.in); len(step.Start) > 0 || waits(step) != "web=CrashLoopBackOff" {
		t.Errorf("then: got %s %v, want it in its back-off", describe(step), step.Waiting)
	}
	w.in.Now = step.WakeAt
	if step = plan.Next(w.in); len(step.Start) != 1 {
		t.Errorf("in the end: got %s, want a start", describe(step))
	}
}

// A changed spec is told before a failed liveness probe, and then the probe has
// no say in the grace period; a sidecar's startup probe comes before both.
func TestAChangedSpecIsReportedBeforeAFailedLivenessProbe(t *testing.T) {
	probed := with("web", livenessProbe, startupProbe, within(3))
	in := input(aPod(probed), observed(ready(0), web("running", 0, 0)))
	in.Memory = plan.Next(in).Memory
	in.Observed.Containers[0].Hash = "another"
	for _, results := range []pod.Probes{{Live: pod.ProbeFailed}, {Startup: pod.ProbeFailed}} {
		results.ContainerID = "web-0"
		in.Probes = pod.ProbeResults{"web": results}
		step := plan.Next(in)
		if len(step.Stop) != 1 {
			t.Fatalf("%+v: got %s, want stop web-0", results, describe(step))
		}
		st := step.Stop[0]
		if want := "Container web definition changed, will be restarted"; st.Message != want || st.Probe || st.Grace != 30*time.Second {
			t.Errorf("%+v: got %q in %v, of a probe: %v, want %q in 30s, of none", results, st.Message, st.Grace, st.Probe, want)
		}
	}
	in = input(aPod(inits("mesh!"), with("mesh", startupProbe)), observed(ready(0), ctr("mesh", "running", 0, 0)))
	in.Memory = plan.Next(in).Memory
	in.Observed.Containers[0].Hash = "another"
	in.Probes = pod.ProbeResults{"mesh": {ContainerID: "mesh-0", Startup: pod.ProbeFailed}}
	if step := plan.Next(in); len(step.Stop) != 1 || step.Stop[0].Message != "Init container mesh failed startup probe" {
		t.Errorf("a sidecar's startup probe: got %+v", step.Stop)
	}
}

// TestProbedContainers: what runs, and is not held back by its postStart hook.
func TestProbedContainers(t *testing.T) {
	p := aPod(inits("once", "mesh!"), containers("web", "side"), ephemerals("looker"))
	all := func(state string) []any {
		return []any{ready(0), ctr("once", "exited 0", 0, 0), ctr("mesh", "running", 0, 0), ctr("web", state, 0, 1), ctr("looker", "running", 0, 0)}
	}
	for name, tc := range map[string]struct {
		seen  pod.Observed
		hooks map[string]pod.Hook
		want  string
	}{
		"nothing is there":        {observed(), nil, ""},
		"what runs":               {observed(all("running")...), nil, "mesh-0 web-1"},
		"no dead one":             {observed(all("exited 1")...), nil, "mesh-0"},
		"none that was only made": {observed(all("created")...), nil, "mesh-0"},
		"none out of sight":       {observed(all("unknown")...), nil, "mesh-0"},
		"its hook is under way":   {observed(all("running")...), map[string]pod.Hook{"web-1": {State: pod.HookRunning}}, "mesh-0"},
		"its hook failed":         {observed(all("running")...), map[string]pod.Hook{"web-1": {State: pod.HookFailed}}, "mesh-0 web-1"},
		"another one's hook":      {observed(all("running")...), map[string]pod.Hook{"web-0": {State: pod.HookRunning}}, "mesh-0 web-1"},
		"the newest of a name":    {observed(ready(0), web("exited 1", 0, 2), web("running", 0, 1)), nil, ""},
	} {
		var got []string
		for _, target := range plan.ProbeTargets(&p.Spec, tc.seen, tc.hooks) {
			if got = append(got, target.ContainerID); !target.StartedAt.Equal(noon.Add(-29 * time.Second)) {
				t.Errorf("%s: %s started at %v", name, target.ContainerID, target.StartedAt)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: got %v, want %q", name, got, tc.want)
		}
	}
}
