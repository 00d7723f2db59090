package plan_test

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/agent/plan"
	"podd/internal/pod"
)

func TestSandbox(t *testing.T) {
	noIP := ready(0)
	noIP.IPs = nil
	young := dead(0)
	young.CreatedAt = noon.Add(-200 * time.Millisecond)
	fromTheFuture := dead(0)
	fromTheFuture.CreatedAt = noon.Add(time.Hour)
	ofTheHost := noIP
	ofTheHost.HostNetwork = true
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		seen pod.Observed
		want string
	}{
		{"none", aPod(), observed(), "sandbox 0"},
		{"ready", aPod(), observed(ready(0)), "create web-0"},
		{"ready, container runs", aPod(), observed(ready(0), web("running", 0, 0)), "-"},
		{"dead", aPod(), observed(dead(0)), "release s0, sandbox 1"},
		{"dead, container ended with it", aPod(), observed(dead(3), web("exited 1", 3, 0)), "release s3, sandbox 4"},
		{"dead, container still runs", aPod(), observed(dead(0), web("running", 0, 0)), "stop web-0"},
		{"dead, container unknown", aPod(), observed(dead(0), web("unknown", 0, 0)), "stop web-0"},
		{"died as it started", aPod(), observed(young), "wake 800ms"},
		{"made in the future", aPod(), observed(fromTheFuture), "release s0, sandbox 1"},
		{"two dead", aPod(), observed(dead(1), dead(0)), "release s1, release s0, sandbox 2"},
		{"newest ready, former dead", aPod(), observed(ready(1), dead(0), web("running", 1, 0)), "remove s0"},
		{"newest dead, former ready", aPod(), observed(dead(1), ready(0), web("running", 0, 0)), "stop web-0, stop-sandbox s0"},
		{"two ready", aPod(), observed(ready(1), ready(0), web("running", 1, 1), ctr("web", "running", 0, 0)),
			"stop web-1, stop web-0, stop-sandbox s1, stop-sandbox s0"},
		{"no address", aPod(), observed(noIP), "stop-sandbox s0"},
		{"no address, container runs", aPod(), observed(noIP, web("running", 0, 0)), "stop web-0, stop-sandbox s0"},
		{"of the host, no address", aPod(hostNetwork), observed(ofTheHost, web("running", 0, 0)), "-"},
		{"of the host, pod wants its own", aPod(), observed(ofTheHost), "stop-sandbox s0"},
		{"its own, pod wants the host's", aPod(hostNetwork), observed(ready(0)), "stop-sandbox s0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(plan.Next(input(tc.pod, tc.seen))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestContainer walks every state of a container, in the current sandbox and
// in one that died, under each restart policy.
func TestContainer(t *testing.T) {
	in0 := func(state string) pod.Observed { return observed(ready(0), web(state, 0, 0)) }
	old := func(state string) pod.Observed { return observed(ready(1), dead(0), web(state, 0, 0)) }
	gone := func(state string) pod.Observed { return observed(dead(0), web(state, 0, 0)) }
	for _, tc := range []struct {
		name                     string
		seen                     pod.Observed
		always, onFailure, never string
	}{
		{"none", observed(ready(0)), "create web-0", "create web-0", "create web-0"},
		{"created", in0("created"), "start web-0", "start web-0", "start web-0"},
		{"running", in0("running"), "-", "-", "-"},
		{"exited 0", in0("exited 0"), "create web-1", "stop-sandbox s0", "stop-sandbox s0"},
		{"exited 1", in0("exited 1"), "create web-1", "create web-1", "stop-sandbox s0"},
		{"unknown", in0("unknown"), "stop web-0", "stop web-0", "stop web-0"},

		{"created in an older sandbox", old("created"),
			"create web-1, remove web-0, remove s0", "create web-1, remove web-0, remove s0", "create web-1, remove web-0, remove s0"},
		{"running in an older sandbox", old("running"), "stop web-0", "stop web-0", "stop web-0"},
		{"exited 0 in an older sandbox", old("exited 0"), "create web-1", "stop-sandbox s1", "stop-sandbox s1"},
		{"exited 1 in an older sandbox", old("exited 1"), "create web-1", "create web-1", "stop-sandbox s1"},
		{"unknown in an older sandbox", old("unknown"), "stop web-0", "stop web-0", "stop web-0"},

		{"created, sandbox dead", gone("created"), "release s0, sandbox 1", "release s0, sandbox 1", "release s0, sandbox 1"},
		{"running, sandbox dead", gone("running"), "stop web-0", "stop web-0", "stop web-0"},
		{"exited 0, sandbox dead", gone("exited 0"), "release s0, sandbox 1", "-", "-"},
		{"exited 1, sandbox dead", gone("exited 1"), "release s0, sandbox 1", "release s0, sandbox 1", "-"},
		{"unknown, sandbox dead", gone("unknown"), "stop web-0", "stop web-0", "stop web-0"},
	} {
		for p, want := range map[v1.RestartPolicy]string{
			v1.RestartPolicyAlways: tc.always, v1.RestartPolicyOnFailure: tc.onFailure, v1.RestartPolicyNever: tc.never,
		} {
			t.Run(tc.name+"/"+string(p), func(t *testing.T) {
				step := plan.Next(input(aPod(policy(p)), tc.seen))
				if got := describe(step); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			})
		}
	}
}

func TestSeveralContainers(t *testing.T) {
	two := containers("web", "side")
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		seen pod.Observed
		want string
	}{
		{"both new, in the pod's order", aPod(two), observed(ready(0)), "create web-0, create side-0"},
		{"one ended, the other runs", aPod(two), observed(ready(0), web("exited 1", 0, 0), ctr("side", "running", 0, 0)), "create web-1"},
		{"one done, the other runs", aPod(two, policy(v1.RestartPolicyNever)),
			observed(ready(0), web("exited 0", 0, 0), ctr("side", "running", 0, 0)), "-"},
		{"both done", aPod(two, policy(v1.RestartPolicyNever)),
			observed(ready(0), web("exited 0", 0, 0), ctr("side", "exited 1", 0, 0)), "stop-sandbox s0"},
		{"one done before the other was made", aPod(two, policy(v1.RestartPolicyNever)),
			observed(ready(0), web("exited 0", 0, 0)), "create side-0"},
		{"one fails, one succeeded, sandbox died", aPod(two, policy(v1.RestartPolicyOnFailure)),
			observed(ready(1), dead(0), web("exited 0", 0, 0), ctr("side", "exited 1", 0, 0)), "create side-1"},
		{"one is not of the pod", aPod(), observed(ready(0), web("running", 0, 0), ctr("side", "running", 0, 0)), "stop side-0"},
		{"two of one name run", aPod(), observed(ready(0), web("running", 0, 1), web("running", 0, 0)), "stop web-0"},
		{"an older one was never started", aPod(), observed(ready(0), web("running", 0, 1), web("created", 0, 0)), "remove web-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(plan.Next(input(tc.pod, tc.seen))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestOneDeadContainerIsKeptForItsLastState(t *testing.T) {
	for _, tc := range []struct {
		name string
		seen pod.Observed
		want string
	}{
		{"running, one dead", observed(ready(0), web("running", 0, 1), web("exited 1", 0, 0)), "-"},
		{"running, three dead", observed(ready(0), web("running", 0, 3), web("exited 1", 0, 2), web("exited 1", 0, 1), web("exited 1", 0, 0)),
			"remove web-1, remove web-0"},
		{"the dead one's sandbox stays with it", observed(ready(1), dead(0), web("running", 1, 1), web("exited 1", 0, 0)), "-"},
		{"superseded with its sandbox", observed(ready(2), dead(1), dead(0), web("running", 2, 2), web("exited 1", 1, 1), web("exited 1", 0, 0)),
			"remove web-0, remove s0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(plan.Next(input(aPod(), tc.seen))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestEnd walks every phase with and without a kill over the same sights.
func TestEnd(t *testing.T) {
	sights := map[string]pod.Observed{
		"nothing": observed(),
		"running": observed(ready(0), web("running", 0, 0)),
		"created": observed(ready(0), web("created", 0, 0)),
		"unknown": observed(dead(0), web("unknown", 0, 0)),
		"ended":   observed(dead(0), web("exited 0", 0, 0)),
	}
	for _, tc := range []struct {
		phase     pod.Phase
		kill      bool
		sight     string
		want      string
		wantPhase pod.Phase
	}{
		{pod.PhasePending, false, "nothing", "sandbox 0", pod.PhaseRunning},
		{pod.PhasePending, false, "running", "-", pod.PhaseRunning},
		{pod.PhasePending, true, "nothing", "-", pod.PhaseTerminating},
		{pod.PhasePending, true, "running", "stop web-0, stop-sandbox s0", pod.PhaseTerminating},
		{pod.PhasePending, true, "created", "stop-sandbox s0", pod.PhaseTerminating},
		{pod.PhasePending, true, "ended", "-", pod.PhaseTerminating},
		{pod.PhasePending, true, "unknown", "stop web-0", pod.PhaseTerminating},
		{pod.PhaseRunning, true, "nothing", "-", pod.PhaseTerminating},
		{pod.PhaseRunning, true, "running", "stop web-0, stop-sandbox s0", pod.PhaseTerminating},
		{pod.PhaseRunning, true, "created", "stop-sandbox s0", pod.PhaseTerminating},
		{pod.PhaseRunning, true, "unknown", "stop web-0", pod.PhaseTerminating},
		{pod.PhaseRunning, true, "ended", "-", pod.PhaseTerminating},
		{pod.PhaseTerminating, true, "running", "stop web-0, stop-sandbox s0", pod.PhaseTerminating},
		{pod.PhaseTerminating, true, "created", "stop-sandbox s0", pod.PhaseTerminating},
		{pod.PhaseTerminating, true, "unknown", "stop web-0", pod.PhaseTerminating},
		{pod.PhaseTerminating, true, "ended", "-", pod.PhaseTerminated},
		{pod.PhaseTerminating, true, "nothing", "-", pod.PhaseTerminated},
		{pod.PhaseTerminating, false, "running", "stop web-0, stop-sandbox s0", pod.PhaseTerminating},
		{pod.PhaseTerminated, true, "ended", "clean-up, remove web-0, remove s0", pod.PhaseGone},
		{pod.PhaseTerminated, true, "running", "clean-up, remove web-0, remove s0", pod.PhaseGone},
		{pod.PhaseTerminated, true, "nothing", "clean-up", pod.PhaseGone},
		{pod.PhaseTerminated, false, "nothing", "clean-up", pod.PhaseGone},
		{pod.PhaseGone, true, "nothing", "-", pod.PhaseGone},
		{pod.PhaseGone, false, "running", "-", pod.PhaseGone},
	} {
		name := tc.phase.String() + "/" + tc.sight
		if tc.kill {
			name += "/kill"
		}
		t.Run(name, func(t *testing.T) {
			in := input(aPod(), sights[tc.sight])
			in.Phase = tc.phase
			if tc.kill {
				in.Kill = &plan.Kill{Grace: 5 * time.Second}
			}
			step := plan.Next(in)
			if got := describe(step); got != tc.want || step.Phase != tc.wantPhase {
				t.Errorf("got  %s, then %v\nwant %s, then %v", got, step.Phase, tc.want, tc.wantPhase)
			}
		})
	}
}

func TestGraceIsThePodsUnlessTheKillHasItsOwn(t *testing.T) {
	running := observed(dead(0), web("running", 0, 0))
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		kill *plan.Kill
		want time.Duration
	}{
		{"not said", aPod(), nil, 30 * time.Second},
		{"the pod's", aPod(graceOf(7)), nil, 7 * time.Second},
		{"none", aPod(graceOf(0)), nil, 0},
		{"negative, which the kubelet raises to 1 s", aPod(graceOf(-5)), nil, time.Second},
		{"as negative as can be", aPod(graceOf(math.MinInt64)), nil, time.Second},
		{"more than a duration holds", aPod(graceOf(9999999999)), nil, pod.MaxInterval},
		{"as long as can be", aPod(graceOf(math.MaxInt64)), nil, pod.MaxInterval},
		{"the kill's", aPod(graceOf(7)), &plan.Kill{Grace: 2 * time.Second}, 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.pod, running)
			in.Kill = tc.kill
			step := plan.Next(in)
			if len(step.Stop) != 1 || step.Stop[0].Grace != tc.want {
				t.Errorf("got %+v, want one stop with grace %v", step.Stop, tc.want)
			}
		})
	}
}

func TestGraceOfAnOrphanedPodIsThatOfItsContainers(t *testing.T) {
	remembered := 90 * time.Second
	c := web("running", 0, 0)
	c.GracePeriod = &remembered
	in := input(aPod(containers()), observed(ready(0), c))
	in.Kill = &plan.Kill{Grace: 30 * time.Second}
	if step := plan.Next(in); len(step.Stop) != 1 || step.Stop[0].Grace != remembered {
		t.Errorf("got %+v, want one stop with grace %v", step.Stop, remembered)
	}
	in.Granted.Pod = aPod(graceOf(5))
	in.Kill.Grace = 5 * time.Second
	if step := plan.Next(in); len(step.Stop) != 1 || step.Stop[0].Grace != 5*time.Second {
		t.Errorf("with a manifest: got %+v, want one stop with grace 5s", step.Stop)
	}
}

func TestStopSaysWhatTheKubeletSays(t *testing.T) {
	in := input(aPod(), observed(ready(0), web("running", 0, 0)))
	in.Kill = &plan.Kill{Reason: "its manifest was removed"}
	if got, want := plan.Next(in).Stop[0].Message, "Stopping container web"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	in = input(aPod(), observed(ready(0), web("unknown", 0, 0)))
	if got, want := plan.Next(in).Stop[0].Message, `Container is in "unknown" state, try killing it before restart`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCrashLoopBackOffSaysWhatTheKubeletSays(t *testing.T) {
	in := input(aPod(), observed(ready(0), web("exited 1", 0, 3)))
	in.Memory.NodeBackOff = map[string]backoff.Entry{
		"web": {Delay: 40 * time.Second, Restarted: noon.Add(-10 * time.Second), Ended: noon.Add(-time.Minute)},
	}
	step := plan.Next(in)
	if got, want := describe(step), "wake 39s"; got != want {
		t.Errorf("got %s, want %s: 40 s from the end, which was a second ago", got, want)
	}
	want := pod.Waiting{Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container=web pod=shop_default(u1)"}
	if got := step.Waiting["web"]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(step.BackOff) != 1 || step.BackOff[0] != "web" {
		t.Errorf("held back: got %v, want web", step.BackOff)
	}
}

func TestBackOffOutlivesTheSandbox(t *testing.T) {
	in := input(aPod(), observed(ready(1), dead(0), web("exited 1", 0, 3)))
	in.Memory.NodeBackOff = map[string]backoff.Entry{
		"web": {Delay: 40 * time.Second, Restarted: noon.Add(-10 * time.Second), Ended: noon.Add(-time.Minute)},
	}
	if got, want := describe(plan.Next(in)), "wake 39s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A start that failed because its sandbox was dying costs no wait in the next.
func TestAStartThatFailedInADyingSandboxDoesNotWait(t *testing.T) {
	failed := web("exited 128", 0, 3)
	failed.StartedAt = time.Time{}
	in := input(aPod(), observed(ready(1), dead(0), failed))
	in.Memory.NodeBackOff = map[string]backoff.Entry{
		"web": {Delay: 10 * time.Second, Restarted: noon.Add(-2 * time.Second), Ended: noon.Add(-3 * time.Second)},
	}
	if got, want := describe(plan.Next(in)), "create web-4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBackOffGrowsWithEachRestartAndOnce(t *testing.T) {
	in := input(aPod(), observed(ready(0), web("exited 1", 0, 0)))
	step := plan.Next(in)
	if got := step.Memory.NodeBackOff["web"].Delay; got != 10*time.Second {
		t.Errorf("after the first restart the next waits %v, want 10s", got)
	}
	if in.Memory.NodeBackOff != nil {
		t.Errorf("the input's memory was changed: %v", in.Memory)
	}
	in.Memory = step.Memory // the create failed: the same end is decided about again
	step = plan.Next(in)
	if got := step.Memory.NodeBackOff["web"].Delay; describe(step) != "create web-1" || got != 10*time.Second {
		t.Errorf("deciding twice about one end: %s, next wait %v; want create web-1, 10s", describe(step), got)
	}
}

func TestFailedStartWaitsAndThenTriesAgain(t *testing.T) {
	why := pod.Waiting{Reason: "CreateContainerError", Message: "no such mount"}
	var m plan.Memory
	now := noon
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		m = m.Failed("web", "", why, now)
		in := input(aPod(), observed(ready(0)))
		in.Memory, in.Now = m, now
		step := plan.Next(in)
		if !step.Idle() || step.Waiting["web"] != why {
			t.Fatalf("just failed: got %s, waiting %v", describe(step), step.Waiting)
		}
		if got := step.WakeAt.Sub(now); got != want*time.Second {
			t.Fatalf("next try in %v, want %v", got, want*time.Second)
		}
		now, in.Now = step.WakeAt, step.WakeAt
		if step = plan.Next(in); describe(step) != "create web-0" || step.Waiting["web"] != why {
			t.Fatalf("when its time has come: got %s, waiting %v", describe(step), step.Waiting)
		}
	}
}

func TestContainerThatWouldNotStartIsTriedAgainLater(t *testing.T) {
	why := pod.Waiting{Reason: "RunContainerError", Message: "no such file"}
	in := input(aPod(), observed(ready(0), web("created", 0, 0)))
	in.Memory = plan.Memory{}.Failed("web", "web-0", why, noon)
	if step := plan.Next(in); describe(step) != "wake 1s" || step.Waiting["web"] != why {
		t.Errorf("still created: got %s %v, want wake 1s and the failure", describe(step), step.Waiting)
	}
	in.Observed = observed(ready(0), web("exited 1", 0, 0))
	if step := plan.Next(in); describe(step) != "create web-1" || step.Waiting["web"] != why {
		t.Errorf("the runtime calls it ended: got %s %v, want create web-1 and the failure", describe(step), step.Waiting)
	}
}

// TestAFailedStartIsShownBeforeItsBackOff: what went wrong first, as the
// kubelet shows it, then what it waits for.
func TestAFailedStartIsShownBeforeItsBackOff(t *testing.T) {
	why := pod.Waiting{Reason: "RunContainerError", Message: "no such file"}
	dead := web("exited 128", 0, 1)
	dead.FinishedAt = noon
	in := input(aPod(), observed(ready(0), dead))
	in.Memory = plan.Memory{}.Failed("web", "web-1", why, noon)
	in.Memory.NodeBackOff = map[string]backoff.Entry{"web": {Delay: 10 * time.Second, Restarted: noon.Add(-time.Second), Ended: noon.Add(-2 * time.Second)}}
	step := plan.Next(in)
	if got := describe(step); got != "wake 1s" || step.Waiting["web"] != why {
		t.Errorf("at first: got %s %v, want wake 1s and the failure", got, step.Waiting)
	}
	in.Now, in.Memory = noon.Add(time.Second), step.Memory
	step = plan.Next(in)
	if got := describe(step); got != "wake 10s" || waits(step) != "web=CrashLoopBackOff" {
		t.Errorf("then: got %s %v, want wake 10s and the back-off", got, step.Waiting)
	}
	in.Now, in.Memory = noon.Add(10*time.Second), step.Memory
	step = plan.Next(in)
	if got := describe(step); got != "create web-2" {
		t.Errorf("in the end: got %s %v, want create web-2", got, step.Waiting)
	}
}

func TestWaitingForAnImageLengthensNoWait(t *testing.T) {
	pulling := pod.Waiting{Reason: "ContainerCreating", Message: "pulling"}
	var m plan.Memory
	for range 20 {
		m = m.Awaiting("web", pulling)
		in := input(aPod(), observed(ready(0)))
		in.Memory = m
		if step := plan.Next(in); describe(step) != "create web-0" || step.Waiting["web"] != pulling {
			t.Fatalf("got %s %v, want another try", describe(step), step.Waiting)
		}
	}
	m = m.Failed("web", "", pod.Waiting{Reason: "CreateContainerError"}, noon)
	if got := m.Failures["web"].NotBefore.Sub(noon); got != time.Second {
		t.Errorf("first failure after a pull: next try in %v, want 1s", got)
	}
}

func TestRunningContainerForgetsItsFailures(t *testing.T) {
	in := input(aPod(), observed(ready(0), web("running", 0, 0)))
	in.Memory = plan.Memory{}.Failed("web", "", pod.Waiting{Reason: "CreateContainerError"}, noon)
	step := plan.Next(in)
	if len(step.Memory.Failures) != 0 || len(in.Memory.Failures) != 1 {
		t.Errorf("got %v (input %v), want none (and the input unchanged)", step.Memory.Failures, in.Memory.Failures)
	}
}

func TestOnlyWhatDoesNotRunWaits(t *testing.T) {
	two := containers("web", "side")
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		seen pod.Observed
		want string
	}{
		{"no sandbox", aPod(two), observed(), "side=ContainerCreating web=ContainerCreating"},
		{"one runs", aPod(two), observed(ready(0), web("running", 0, 0)), "side=ContainerCreating"},
		{"one runs, a stray is stopped first", aPod(two), observed(ready(0), web("running", 0, 0), ctr("x", "running", 0, 0)), "side=ContainerCreating"},
		{"one is done", aPod(two, policy(v1.RestartPolicyOnFailure)), observed(dead(0), web("exited 0", 0, 0)), "side=ContainerCreating"},
		{"all done", aPod(policy(v1.RestartPolicyNever)), observed(dead(0), web("exited 0", 0, 0)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := waits(plan.Next(input(tc.pod, tc.seen))); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAStepNamesTheSandboxOfItsStarts, and says whether a container is to be made.
func TestAStepNamesTheSandboxOfItsStarts(t *testing.T) {
	for name, c := range map[string]struct {
		seen            pod.Observed
		sandbox         string
		starts, creates bool
	}{
		"nothing is there":   {observed(), "", false, false},
		"a sandbox":          {observed(ready(0)), "s0", true, true},
		"beside a dead one":  {observed(ready(1), dead(0)), "s1", true, true},
		"a container is too": {observed(ready(0), web("created", 0, 0)), "s0", true, false},
		"all runs":           {observed(ready(0), web("running", 0, 0)), "s0", false, false},
		"the sandbox died":   {observed(dead(0), web("exited 1", 0, 0)), "", false, false},
	} {
		step := plan.Next(input(aPod(), c.seen))
		got := ""
		if step.Sandbox != nil {
			got = step.Sandbox.ID
		}
		if got != c.sandbox || len(step.Start) > 0 != c.starts || step.Creates() != c.creates {
			t.Errorf("%s: got sandbox %q, starts %v, creates %v", name, got, step.Start, step.Creates())
		}
	}
}
