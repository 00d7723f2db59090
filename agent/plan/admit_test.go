package plan_test

import (
	"slices"
	"testing"
	"time"

	"podd/agent/plan"
	"podd/internal/pod"
)

func TestAdmissionIsAskedAgain(t *testing.T) {
	full, preempts := &pod.Verdict{Reason: "OutOfcpu"}, &pod.Verdict{Preempt: []pod.UID{"victim"}}
	for name, c := range map[string]struct {
		plan.Candidate
		source              pod.Source
		unchanged, onChange plan.Admission
	}{
		"new":                                 {plan.Candidate{}, pod.SourceFile, plan.AskNode, plan.AskNode},
		"runs":                                {plan.Candidate{Runs: true}, pod.SourceFile, plan.Admitted, plan.Admitted},
		"has ended":                           {plan.Candidate{Ended: true}, pod.SourceFile, plan.Admitted, plan.Admitted},
		"runs, and was rejected":              {plan.Candidate{Runs: true, Rejected: full}, pod.SourceAPIServer, plan.Admitted, plan.Admitted},
		"rejected, of a file":                 {plan.Candidate{Rejected: full}, pod.SourceFile, plan.Rejected, plan.AskNode},
		"rejected, over HTTP":                 {plan.Candidate{Rejected: full}, pod.SourceHTTP, plan.Rejected, plan.AskNode},
		"rejected, an apiserver's":            {plan.Candidate{Rejected: full}, pod.SourceAPIServer, plan.Rejected, plan.Rejected},
		"waits for room":                      {plan.Candidate{Rejected: preempts}, pod.SourceFile, plan.Rejected, plan.AskNode},
		"waits for room, an apiserver's":      {plan.Candidate{Rejected: preempts}, pod.SourceAPIServer, plan.Rejected, plan.AskNode},
		"rejected, but it ended some way":     {plan.Candidate{Ended: true, Rejected: full}, pod.SourceAPIServer, plan.Admitted, plan.Admitted},
		"waited for room, and runs meanwhile": {plan.Candidate{Runs: true, Rejected: preempts}, pod.SourceFile, plan.Admitted, plan.Admitted},
	} {
		c.Desired = &pod.Desired{Pod: aPod(), Source: c.source}
		if got := c.Admission(false); got != c.unchanged {
			t.Errorf("%s: got %v, want %v", name, got, c.unchanged)
		}
		if got := c.Admission(true); got != c.onChange {
			t.Errorf("%s, once something changed: got %v, want %v", name, got, c.onChange)
		}
	}
}

func TestStartOrder(t *testing.T) {
	one := func(name string, seen time.Duration) plan.Candidate {
		p := aPod()
		p.Name = name
		return plan.Candidate{Desired: &pod.Desired{Pod: p, Seen: noon.Add(seen)}}
	}
	with := func(c plan.Candidate, change func(*plan.Candidate)) plan.Candidate {
		change(&c)
		return c
	}
	all := []plan.Candidate{
		one("late", time.Minute), one("b", 0), one("a", 0),
		with(one("rejected", 2*time.Minute), func(c *plan.Candidate) { c.Rejected = &pod.Verdict{Reason: "OutOfcpu"} }),
		with(one("critical", 3*time.Minute), func(c *plan.Candidate) { c.Rejected = &pod.Verdict{Preempt: []pod.UID{"a"}} }),
		with(one("runs", 4*time.Minute), func(c *plan.Candidate) { c.Runs = true }),
		with(one("runs since before", 3*time.Minute), func(c *plan.Candidate) { c.Runs = true }),
	}
	want := []string{"runs since before", "runs", "critical", "a", "b", "late", "rejected"}
	for range 2 {
		plan.StartOrder(all)
		var got []string
		for _, c := range all {
			got = append(got, c.Desired.Pod.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		slices.Reverse(all)
	}
}
