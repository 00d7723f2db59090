package plan_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// saysEnding writes an ending as "kill 5s why, Evicted 10s".
func saysEnding(e plan.Termination) string {
	text := "-"
	if e.Kill != nil {
		text = fmt.Sprintf("kill %v %s", e.Kill.Grace, e.Kill.Reason)
	}
	if e.End != nil {
		text += " " + e.End.Reason
		if e.End.Grace != nil {
			text += fmt.Sprint(" ", *e.End.Grace)
		}
	}
	return text
}

func TestAnEndingIsOnlyShortened(t *testing.T) {
	const s = time.Second
	kill := func(grace time.Duration) plan.Termination {
		return plan.Termination{Kill: &plan.Kill{Grace: grace, Reason: "gone"}}
	}
	end := func(reason string, grace ...time.Duration) pod.Termination {
		e := pod.Termination{Reason: reason}
		if len(grace) > 0 {
			e.Grace = &grace[0]
		}
		return e
	}
	ended := func(e pod.Termination) plan.Termination { return plan.Termination{End: &e} }
	for name, c := range map[string]struct {
		before plan.Termination
		kill   time.Duration // 0 for none
		end    pod.Termination
		want   string
		news   bool
	}{
		"a kill":                             {plan.Termination{}, 30 * s, pod.Termination{}, "kill 30s why", true},
		"a shorter kill":                     {kill(30 * s), 5 * s, pod.Termination{}, "kill 5s why", true},
		"a longer kill":                      {kill(5 * s), 30 * s, pod.Termination{}, "kill 5s gone", false},
		"the same kill":                      {kill(5 * s), 5 * s, pod.Termination{}, "kill 5s gone", false},
		"a kill of what the node ends":       {ended(end("Evicted", 5*s)), 30 * s, pod.Termination{}, "kill 30s why Evicted 5s", true},
		"the node's decision":                {plan.Termination{}, 0, end("Evicted"), "- Evicted", true},
		"a second one without a grace":       {ended(end("Evicted", 5*s)), 0, end("Preempting"), "- Evicted 5s", false},
		"a second one with a shorter grace":  {ended(end("Evicted", 5*s)), 0, end("Preempting", s), "- Evicted 1s", true},
		"a second one with a longer grace":   {ended(end("Evicted", 5*s)), 0, end("Preempting", 9*s), "- Evicted 5s", false},
		"a second one with the same grace":   {ended(end("Evicted", 5*s)), 0, end("Preempting", 5*s), "- Evicted 5s", false},
		"a second one with any grace at all": {ended(end("Evicted")), 0, end("Preempting", time.Hour), "- Evicted 1h0m0s", true},
		"of a killed one, without a grace":   {kill(30 * s), 0, end("Evicted"), "kill 30s gone", false},
		"of a killed one, shorter":           {kill(30 * s), 0, end("Evicted", s), "kill 1s Evicted", true},
		"of a killed one, longer":            {kill(30 * s), 0, end("Evicted", time.Hour), "kill 30s gone", false},
		"of a killed one, the same":          {kill(30 * s), 0, end("Evicted", 30*s), "kill 30s gone", false},
	} {
		before := saysEnding(c.before)
		next, news := c.before.WithEnd(c.end, noon)
		if c.kill > 0 {
			next, news = c.before.WithKill(plan.Kill{Grace: c.kill, Reason: "why"})
		}
		if got := saysEnding(next); got != c.want || news != c.news {
			t.Errorf("%s: got %q (news %v), want %q (%v)", name, got, news, c.want, c.news)
		}
		if after := saysEnding(c.before); after != before {
			t.Errorf("%s: what was before is changed from %q to %q", name, before, after)
		}
	}
}

func TestAnEndIsDatedOnce(t *testing.T) {
	undated := &v1.PodCondition{Type: v1.DisruptionTarget}
	first, _ := plan.Termination{}.WithEnd(pod.Termination{Condition: undated}, noon)
	if got := first.End.Condition.LastTransitionTime.Time; !got.Equal(noon) || !undated.LastTransitionTime.IsZero() {
		t.Errorf("got %v, and the caller's own is %v", got, undated.LastTransitionTime)
	}
	second, _ := plan.Termination{}.WithEnd(pod.Termination{Condition: first.End.Condition}, noon.Add(time.Hour))
	if got := second.End.Condition.LastTransitionTime.Time; !got.Equal(noon) {
		t.Errorf("one with a date: got %v", got)
	}
}

// TestATerminationThatTakesTooLongIsReportedOnce: after half of the grace period more, at
// least 10 s, and never of an end that came in time.
func TestATerminationThatTakesTooLongIsReportedOnce(t *testing.T) {
	runs, ended := observed(ready(0), web("running", 0, 0)), observed(dead(0), web("exited 0", 0, 0))
	for name, c := range map[string]struct {
		reason string
		grace  *time.Duration
		after  time.Duration
		seen   pod.Observed
		want   bool
		wake   time.Duration
	}{
		"evicted, not yet":                 {pod.ReasonEvicted, nil, 44 * time.Second, runs, false, 45 * time.Second},
		"evicted, the pod's own grace":     {pod.ReasonEvicted, nil, 45 * time.Second, runs, true, 0},
		"evicted, another grace":           {pod.ReasonEvicted, ptr(40 * time.Second), 59 * time.Second, runs, false, time.Minute},
		"pre-empted, hardly any grace":     {pod.ReasonPreempting, ptr(2 * time.Second), 10 * time.Second, runs, true, 0},
		"pre-empted, ten seconds at least": {pod.ReasonPreempting, ptr(2 * time.Second), 9 * time.Second, runs, false, 10 * time.Second},
		"it came in time":                  {pod.ReasonEvicted, nil, time.Hour, ended, false, 0},
		"a deadline":                       {pod.ReasonDeadlineExceeded, nil, time.Hour, runs, false, 0},
	} {
		in := input(aPod(), runs)
		in.End = &pod.Termination{Reason: c.reason, Grace: c.grace}
		first := plan.Next(in)
		in.Memory, in.Now, in.Observed = first.Memory, noon.Add(c.after), c.seen
		step := plan.Next(in)
		wake := time.Duration(0)
		if !step.WakeAt.IsZero() {
			wake = step.WakeAt.Sub(noon)
		}
		if first.Overdue || step.Overdue != c.want || wake != c.wake {
			t.Errorf("%s: got %v, wake %v; want %v, wake %v", name, step.Overdue, wake, c.want, c.wake)
		}
		in.Memory, in.Now, in.Observed = step.Memory, noon.Add(2*time.Hour), runs
		if again := plan.Next(in); again.Overdue && (c.want || len(c.seen.Sandboxes) > 0 && !c.seen.Sandboxes[0].Ready) {
			t.Errorf("%s: it is told again", name)
		}
	}
}
