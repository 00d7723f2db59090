package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

func deadlineOf(seconds int64) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }
}

func TestDeadline(t *testing.T) {
	runs := observed(ready(0), web("running", 0, 0))
	done := observed(dead(0), web("exited 0", 0, 0))
	for _, tc := range []struct {
		name  string
		pod   *v1.Pod
		seen  pod.Observed
		since time.Duration // before noon
		want  string
		ended bool
	}{
		{"none", aPod(), runs, time.Hour, "-", false},
		{"not yet", aPod(deadlineOf(60)), runs, 59 * time.Second, "wake 1s", false},
		{"a moment before", aPod(deadlineOf(60)), runs, 60*time.Second - 1, "wake 1ns", false},
		{"now", aPod(deadlineOf(60)), runs, time.Minute, "stop web-0, stop-sandbox s0", true},
		{"while it starts", aPod(deadlineOf(60)), observed(ready(0)), time.Minute, "stop-sandbox s0", true},
		{"before it starts", aPod(deadlineOf(60)), observed(), time.Minute, "-", true},
		{"not yet, nothing made", aPod(deadlineOf(60)), observed(), 0, "sandbox 0, wake 1m0s", false},
		{"while init containers run", aPod(deadlineOf(60), inits("a")), observed(ready(0), ctr("a", "running", 0, 0)), time.Hour,
			"stop a-0, stop-sandbox s0", true},
		{"of a pod that has completed", aPod(deadlineOf(60), policy(v1.RestartPolicyNever)), done, time.Hour, "-", false},
		{"of a pod that will not begin again", aPod(containers("web", "side"), deadlineOf(60), policy(v1.RestartPolicyNever)), done, time.Hour, "-", true},
		{"before the end of a back-off", aPod(deadlineOf(60)), observed(ready(0), web("exited 1", 0, 0)), time.Minute, "stop-sandbox s0", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.pod, tc.seen)
			in.StartTime = noon.Add(-tc.since)
			step := plan.Next(in)
			if got := describe(step); got != tc.want || (step.End != nil) != tc.ended {
				t.Fatalf("got %s, end %v; want %s, ended %v", got, step.End, tc.want, tc.ended)
			}
			want := pod.Termination{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
			if tc.ended && *step.End != want {
				t.Errorf("got %+v, want %+v", *step.End, want)
			}
		})
	}
	in := input(aPod(deadlineOf(60)), runs)
	in.StartTime = time.Time{}
	if got := describe(plan.Next(in)); got != "-" {
		t.Errorf("of a pod that was not taken up: got %s, want -", got)
	}
}

// TestAnEndForGood: the node ends a pod that is still wanted, and leaves what
// tells of it.
func TestAnEndForGood(t *testing.T) {
	w := newWorld(aPod(inits("mesh!"), containers("web", "side")))
	w.settle(t)
	w.exits("side", 1)
	w.in.End = &pod.Termination{Reason: pod.ReasonEvicted, Message: "memory is low"}
	if got, want := w.steps(t), "stop web, stop mesh after web"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	step := w.settle(t)
	if !step.Finished || step.End != w.in.End || step.Phase != pod.PhaseRunning || len(step.Waiting) > 0 {
		t.Errorf("got %+v, want the pod finished in its place, and nothing waiting", step)
	}
	for _, name := range []string{"web", "side", "mesh"} {
		if w.latest(name) == nil {
			t.Errorf("%s is removed, which its status and logs need", name)
		}
	}
	if w.in.Observed.Sandboxes[0].Ready {
		t.Errorf("the sandbox is kept")
	}
	w.crash()
	if step := w.settle(t); !step.Finished {
		t.Errorf("after a restart of podd: got %+v, want it still finished", step)
	}
	w.in.Kill = &plan.Kill{Grace: time.Second}
	if w.settle(t); w.in.Phase != pod.PhaseGone {
		t.Errorf("when it is removed: got %v, want Gone", w.in.Phase)
	}
}
