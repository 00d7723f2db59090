package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/agent/plan"
	"podd/internal/pod"
)

// clocks are by how much the times that the runtime tells are ahead of podd's own:
// they are by the wall clock, which somebody may set back.
var clocks = map[string]time.Duration{"right": 0, "set an hour back": time.Hour, "set a second back": time.Second}

// A crash loop waits for its back-off, whatever the clock says of the crash.
func TestABackOffWaitsByNoClockThatMayBeSet(t *testing.T) {
	for name, off := range clocks {
		c := web("exited 1", 0, 3)
		c.StartedAt, c.FinishedAt, c.CreatedAt = noon.Add(off-2*time.Second), noon.Add(off), noon.Add(off-2*time.Second)
		in := input(aPod(), observed(ready(0), c))
		in.Memory.NodeBackOff = map[string]backoff.Entry{"web": {Delay: 40 * time.Second, Restarted: noon.Add(-2 * time.Second), Ended: noon.Add(-time.Minute)}}
		step := plan.Next(in)
		if got := describe(step); got != "wake 40s" {
			t.Errorf("clock %s: got %s, want to wait for 40 s", name, got)
		}
		// Meanwhile the clock is set again, and the runtime's times with it.
		in.Memory, in.Now = step.Memory, noon.Add(15*time.Second)
		in.Observed.Containers[0].FinishedAt = noon.Add(-2 * time.Hour)
		if step = plan.Next(in); describe(step) != "wake 40s" {
			t.Errorf("clock %s, and set meanwhile: got %s, want to wait on", name, describe(step))
		}
		in.Memory, in.Now = step.Memory, noon.Add(40*time.Second)
		if step = plan.Next(in); describe(step) != "create web-4" {
			t.Errorf("clock %s: after 40 s got %s, want it started", name, describe(step))
		}
		// Deciding again about the same end neither waits nor counts.
		in.Memory, in.Now = step.Memory, noon.Add(41*time.Second)
		if again := plan.Next(in); describe(again) != "create web-4" || again.Memory.NodeBackOff["web"] != step.Memory.NodeBackOff["web"] {
			t.Errorf("clock %s: again: got %s", name, describe(again))
		}
	}
}

// A crash that seems to have been long ago, because the clock was set forward before it was
// seen, was not: podd looked before it, and the container had not ended, or was not there.
func TestABackOffWaitsThoughTheClockWasSetForward(t *testing.T) {
	for name, before := range map[string]pod.Observed{
		"it ran":        observed(ready(0), web("running", 0, 3)),
		"it was made":   observed(ready(0), web("created", 0, 3)),
		"another ended": observed(ready(0), web("exited 1", 0, 2)),
	} {
		in := input(aPod(), before)
		in.Observed.At = noon
		in.Memory.NodeBackOff = map[string]backoff.Entry{"web": {Delay: 40 * time.Second, Restarted: noon.Add(-2 * time.Second), Ended: noon.Add(-time.Minute)}}
		in.Memory = plan.Next(in).Memory
		ended := web("exited 1", 0, 3)
		ended.CreatedAt, ended.StartedAt, ended.FinishedAt = noon.Add(-2*time.Hour), noon.Add(-2*time.Hour), noon.Add(-2*time.Hour)
		in.Observed, in.Now = observed(ready(0), ended), noon.Add(2*time.Second)
		in.Observed.At = in.Now
		if got := describe(plan.Next(in)); got != "wake 42s" {
			t.Errorf("%s: got %s, want to wait for 40 s", name, got)
		}
	}
}

// An end that the runtime showed late is as old as it says, and so is that of a container
// whose successor was removed by somebody else.
func TestAnEndIsAsOldAsItSaysWhereNoClockWasSet(t *testing.T) {
	restarts := map[string]backoff.Entry{"web": {Delay: 40 * time.Second, Restarted: noon.Add(-30 * time.Second), Ended: noon.Add(-time.Minute)}}
	for name, test := range map[string]struct {
		before pod.Container
		age    time.Duration
	}{
		"shown late":         {web("running", 0, 3), 3 * time.Second},
		"the successor went": {web("running", 0, 4), 20 * time.Second},
	} {
		in := input(aPod(), observed(ready(0), test.before))
		in.Observed.At, in.Memory.NodeBackOff = noon, restarts
		in.Memory = plan.Next(in).Memory
		ended := web("exited 1", 0, 3)
		ended.FinishedAt = noon.Add(-test.age)
		in.Observed, in.Now = observed(ready(0), ended), noon.Add(time.Second)
		in.Observed.At = in.Now
		if got, want := describe(plan.Next(in)), "wake "+(40*time.Second-test.age).String(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// How long a container lived that a probe had killed is told by when it was seen.
func TestALifeIsMeasuredByNoClockThatMayBeSet(t *testing.T) {
	for name, off := range clocks {
		p := aPod(with("web", livenessProbe))
		running := web("running", 0, 3)
		in := input(p, observed(ready(0), running))
		in.Memory = plan.Next(in).Memory // seen 29 s after its start
		in.Now = noon.Add(10 * time.Second)
		in.Probes = pod.ProbeResults{"web": {ContainerID: "web-3", Live: pod.ProbeFailed}}
		in.Memory.NodeBackOff = map[string]backoff.Entry{"web": {Delay: 60 * time.Second, Restarted: noon.Add(-30 * time.Second), Ended: noon.Add(-time.Minute)}}
		in.Memory = plan.Next(in).Memory // stops it
		in.Now = noon.Add(11 * time.Second)
		ended := web("exited 137", 0, 3)
		ended.FinishedAt = in.Now.Add(off)
		in.Observed = observed(ready(0), ended)
		// It lived for 40 s, and would have had to for 60.
		if got := describe(plan.Next(in)); got != "wake 1m11s" {
			t.Errorf("clock %s: got %s, want to wait for a minute", name, got)
		}
	}
}

// A pod's sandbox that died is replaced at its pace, and what was killed is waited
// for, for no longer than that.
func TestSandboxesWaitByNoClockThatMayBeSet(t *testing.T) {
	for _, off := range []time.Duration{time.Minute, 24 * time.Hour} {
		young := dead(0)
		young.CreatedAt = noon.Add(off)
		if got := describe(plan.Next(input(aPod(), observed(young)))); got != "release s0, sandbox 1" {
			t.Errorf("made in %v: got %s", off, got)
		}
		killed := web("exited 137", 0, 0)
		killed.FinishedAt = noon.Add(off)
		if got := describe(plan.Next(input(aPod(policy(v1.RestartPolicyNever)), observed(ready(0), killed)))); got != "stop-sandbox s0" {
			t.Errorf("killed in %v: got %s", off, got)
		}
	}
}

// Of dead containers the newest is the one with the highest attempt: with a clock
// that was set back it is older than those before it by what it was made at.
func TestTheNewestDeadContainerStaysWhateverTheClockSays(t *testing.T) {
	old, newest := web("exited 1", 0, 0), web("exited 0", 0, 1)
	old.CreatedAt, newest.CreatedAt = noon, noon.Add(-time.Hour)
	for name, seen := range map[string]pod.Observed{
		"by attempt": observed(ready(0), newest, old, ctr("side", "running", 0, 0)),
		"by time":    observed(ready(0), old, newest, ctr("side", "running", 0, 0)),
	} {
		in := input(aPod(policy(v1.RestartPolicyOnFailure), containers("web", "side")), seen)
		if got := describe(plan.Next(in)); got != "remove web-0" {
			t.Errorf("%s: got %s, want the older one removed", name, got)
		}
	}
}
