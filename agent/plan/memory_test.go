package plan_test

import (
	"testing"
	"time"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestAttemptWhoseNameIsTaken is tried again for a moment, in which the create
// that holds the name may come true, and then left behind.
func TestAttemptWhoseNameIsTaken(t *testing.T) {
	var m plan.Memory
	m = m.NameTaken("", 0, noon).NameTaken("", 0, noon.Add(50*time.Second)).NameTaken("web", 3, noon)
	dead2 := observed(ready(0), web("exited 1", 0, 2))
	for _, tc := range []struct {
		name  string
		seen  pod.Observed
		after time.Duration
		want  string
	}{
		{"sandbox, at first", observed(), 0, "sandbox 0"},
		{"sandbox, after most of the patience", observed(), 4 * time.Second, "sandbox 0"},
		{"sandbox, after that", observed(), 5 * time.Second, "sandbox 1"},
		{"sandbox, a later one is dead", observed(dead(4)), 0, "release s4, sandbox 5"},
		{"container, at first", dead2, 0, "create web-3"},
		{"container, after that", dead2, 5 * time.Second, "create web-4"},
		{"container, a later one ended", observed(ready(0), web("exited 1", 0, 7)), 0, "create web-8"},
		{"container, its name came free", observed(ready(0), web("created", 0, 3)), time.Minute, "start web-3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(aPod(), tc.seen)
			in.Memory, in.Now = m, noon.Add(tc.after)
			if got := describe(plan.Next(in)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestALostNameIsSteppedOverAtOnce(t *testing.T) {
	m := plan.Memory{}.NameTaken("", 0, noon).NameLost("", 0)
	in := input(aPod(), observed())
	in.Memory = m
	if step := plan.Next(in); !step.CreateSandbox || step.Attempt != 1 {
		t.Errorf("after a name that is lost: got sandbox %v, attempt %d, want attempt 1 now", step.CreateSandbox, step.Attempt)
	}
}
