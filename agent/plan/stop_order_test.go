package plan_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// TestSidecarsEndLastAndInReverse, in every way in which a whole pod ends.
func TestSidecarsEndLastAndInReverse(t *testing.T) {
	p := aPod(inits("mesh!", "a", "logs!"), containers("web", "side"), ephemerals("looker"), policy(v1.RestartPolicyNever))
	run := func(name string) pod.Container { return ctr(name, "running", 0, 0) }
	all := observed(ready(0), run("looker"), run("side"), run("web"), run("logs"), run("mesh"))
	const inOrder = "stop looker-0, stop side-0, stop web-0, stop logs-0 after side-0 web-0, stop mesh-0 after side-0 web-0 logs-0"
	dead := all
	dead.Sandboxes = []pod.Sandbox{{ID: "s0"}}
	kill, end := &plan.Kill{Grace: time.Minute}, &pod.Termination{Reason: pod.ReasonEvicted}
	for _, tc := range []struct {
		name string
		seen pod.Observed
		kill *plan.Kill
		end  *pod.Termination
		want string
	}{
		{"killed", all, kill, nil, inOrder + ", stop-sandbox s0"},
		{"ended for good", all, nil, end, inOrder + ", stop-sandbox s0, wake 45s"}, // when it is overdue
		{"its sandbox died", dead, nil, nil, inOrder},
		{"killed as it starts", observed(ready(0), run("a"), run("mesh")), kill, nil, "stop a-0, stop mesh-0 after a-0, stop-sandbox s0"},
		{"the one between has ended", observed(ready(0), run("web"), ctr("logs", "exited 0", 0, 0), run("mesh")), kill, nil,
			"stop web-0, stop mesh-0 after web-0, stop-sandbox s0"},
		{"completed", observed(ready(0), web("exited 0", 0, 0), ctr("side", "exited 1", 0, 0), run("logs"), run("mesh")), nil, nil,
			"stop logs-0, stop mesh-0 after logs-0, stop-sandbox s0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(p, tc.seen)
			in.Kill, in.End = tc.kill, tc.end
			if got := describe(plan.Next(in)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Of a pod whose manifest is gone, its containers' annotations tell.
func TestSidecarsOfAnOrphanEndLast(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	mesh, logs := ctr("mesh", "running", 0, 0), ctr("logs", "running", 0, 0)
	mesh.Kept, logs.Kept = &v1.Container{RestartPolicy: &always}, &v1.Container{RestartPolicy: &always}
	mesh.CreatedAt = logs.CreatedAt.Add(-time.Second)
	shop := web("running", 0, 0)
	shop.Kept = &v1.Container{Name: "web", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}}
	in := input(aPod(containers()), observed(ready(0), logs, mesh, shop))
	in.Kill = &plan.Kill{Grace: 30 * time.Second}
	step := plan.Next(in)
	if got, want := describe(step), "stop logs-0 after web-0, stop mesh-0 after logs-0 web-0, stop web-0, stop-sandbox s0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if step.Stop[2].PreStop != shop.Kept || step.Stop[0].PreStop != nil {
		t.Errorf("got hooks of %v and %v, want web's alone", step.Stop[2].PreStop, step.Stop[0].PreStop)
	}
}

func TestPreStopHooksAreRunAtOnce(t *testing.T) {
	p := aPod(inits("mesh!"), with("mesh", preStop), with("web", preStop))
	lost := web("unknown", 0, 0)
	for _, tc := range []struct {
		name          string
		grace         time.Duration
		web           pod.Container
		ofWeb, ofMesh bool
	}{
		{"both run", time.Minute, web("running", 0, 0), true, true},
		{"no time", 0, web("running", 0, 0), false, false},
		{"one is lost", time.Minute, lost, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(p, observed(ready(0), tc.web, ctr("mesh", "running", 0, 0)))
			in.Kill = &plan.Kill{Grace: tc.grace}
			step := plan.Next(in)
			if len(step.Stop) != 2 || (step.Stop[0].PreStop != nil) != tc.ofWeb || (step.Stop[1].PreStop != nil) != tc.ofMesh {
				t.Errorf("got %+v, want hooks: web %v, mesh %v", step.Stop, tc.ofWeb, tc.ofMesh)
			}
		})
	}
}

func TestTheShorterGraceWins(t *testing.T) {
	s := time.Second
	kept := 90 * s
	for _, tc := range []struct {
		name   string
		kill   *plan.Kill
		end    *pod.Termination
		orphan bool
		want   time.Duration
	}{
		{"an end without one", nil, &pod.Termination{}, false, 40 * s},
		{"an end's", nil, &pod.Termination{Grace: ptr(s)}, false, s},
		{"an end's longer one", nil, &pod.Termination{Grace: ptr(50 * s)}, false, 50 * s},
		{"a kill after an end's", &plan.Kill{Grace: 40 * s}, &pod.Termination{Grace: ptr(s)}, false, s},
		{"a shorter kill after an end's", &plan.Kill{Grace: s}, &pod.Termination{Grace: ptr(5 * s)}, false, s},
		{"a kill after an end without one", &plan.Kill{Grace: 7 * s}, &pod.Termination{}, false, 7 * s},
		{"an orphan's", &plan.Kill{Grace: 30 * s}, nil, true, 90 * s},
		{"an orphan's, shortened", &plan.Kill{Grace: 3 * s}, nil, true, 3 * s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := web("running", 0, 0)
			p := aPod(graceOf(40))
			if tc.orphan {
				p, c.GracePeriod = aPod(containers()), &kept
			}
			in := input(p, observed(ready(0), c))
			in.Kill, in.End = tc.kill, tc.end
			if step := plan.Next(in); len(step.Stop) != 1 || step.Stop[0].Grace != tc.want {
				t.Errorf("got %+v, want one stop with grace %v", step.Stop, tc.want)
			}
		})
	}
	p := aPod(graceOf(40))
	p.DeletionGracePeriodSeconds = ptr(int64(3))
	if got := plan.GracePeriod(p); got != 3*s {
		t.Errorf("of a pod that is being deleted: got %v, want 3s", got)
	}
}
