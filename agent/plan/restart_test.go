package plan_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/agent/backoff"
	"podd/agent/plan"
	"podd/internal/pod"
)

func TestContainersHaveTheirOwnRestartPolicy(t *testing.T) {
	never, onFailure, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyAlways
	restart := v1.ContainerRestartRuleActionRestart
	const again, over = "create web-1", "stop-sandbox s0"
	for _, tc := range []struct {
		name  string
		pod   v1.RestartPolicy
		with  func(*v1.Container)
		state string
		want  string
	}{
		{"Never in a pod that restarts", v1.RestartPolicyAlways, ofItsOwn(never), "exited 1", over},
		{"OnFailure in a pod that restarts, failed", v1.RestartPolicyAlways, ofItsOwn(onFailure), "exited 1", again},
		{"OnFailure in a pod that restarts, succeeded", v1.RestartPolicyAlways, ofItsOwn(onFailure), "exited 0", over},
		{"Always in a pod that does not", v1.RestartPolicyNever, ofItsOwn(always), "exited 0", again},
		{"a rule restarts it", v1.RestartPolicyNever, rule(restart, 3), "exited 3", again},
		{"a rule for another exit code", v1.RestartPolicyAlways, rule(restart, 3), "exited 1", over},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := aPod(policy(tc.pod), with("web", tc.with))
			if got := describe(plan.Next(input(p, observed(ready(0), web(tc.state, 0, 0))))); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// A pod that never restarts begins again in a new sandbox only for containers
// that say so themselves.
func TestWhatRunsInANewSandboxOfAPodThatNeverRestarts(t *testing.T) {
	two, never := containers("web", "side"), policy(v1.RestartPolicyNever)
	neverRan := web("exited 128", 0, 0)
	neverRan.StartedAt = time.Time{}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		seen pod.Observed
		want string
		lost bool
	}{
		{"nothing was started", aPod(two, never), observed(dead(0), web("created", 0, 0)), "release s0, sandbox 1", false},
		{"one could not be started, the other was not made", aPod(two, never), observed(dead(0), neverRan), "release s0, sandbox 1", false}, // was Pending for ever
		{"one could not be started, the other runs next", aPod(two, never), observed(ready(1), dead(0), neverRan), "create side-0", false},
		{"one had begun, the other not", aPod(two, never), observed(dead(0), web("exited 1", 0, 0)), "-", true},
		{"one had begun, the other not, and a sandbox came late", aPod(two, never), observed(ready(1), dead(0), web("exited 1", 0, 0)), "stop-sandbox s1", true},
		{"one restarts by its own policy", aPod(two, never, with("side", ofItsOwn(v1.ContainerRestartPolicyAlways))),
			observed(dead(0), web("exited 1", 0, 0), ctr("side", "exited 0", 0, 0)), "release s0, sandbox 1", false},
		{"one restarts by its own policy, in the new one", aPod(two, never, with("side", ofItsOwn(v1.ContainerRestartPolicyAlways))),
			observed(ready(1), dead(0), web("exited 1", 0, 0), ctr("side", "exited 0", 0, 0)), "create side-1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			step := plan.Next(input(tc.pod, tc.seen))
			if got := describe(step); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if (step.End != nil) != tc.lost {
				t.Errorf("got end %+v, want one %v", step.End, tc.lost)
			}
		})
	}
}

// crashes is a world in which web has failed n times, each time as soon as it
// ran.
func crashes(t *testing.T, p *v1.Pod, n int) *world {
	t.Helper()
	w := newWorld(p)
	for range n {
		w.runAndExit(t, 1)
	}
	return w
}

// held is how long the newest container waits from now; 0 when it is started.
func held(t *testing.T, w *world) time.Duration {
	t.Helper()
	step := w.next()
	if len(step.Start) > 0 {
		return 0
	}
	return step.WakeAt.Sub(w.in.Now)
}

// kubernetes/kubernetes#57291: the back-off policy can be tuned, per node and per pod, and
// clean exits can be exempt.
func TestTheBackOffPolicyOfRestarts(t *testing.T) {
	said := func(annotations map[string]string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations = annotations }
	}
	s := time.Second
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		policy backoff.Policy
		code   int32
		want   []time.Duration
	}{
		{"the kubelet's", aPod(), backoff.Default(), 1, []time.Duration{0, 10 * s, 20 * s, 40 * s}},
		{"the kubelet's, for clean exits too", aPod(), backoff.Default(), 0, []time.Duration{0, 10 * s, 20 * s, 40 * s}},
		{"the node's", aPod(), backoff.Policy{Initial: s, Max: 3 * s, Reset: 600 * s}, 1, []time.Duration{0, s, 2 * s, 3 * s, 3 * s}},
		{"the pod's", aPod(said(map[string]string{pod.AnnotationBackOffInitial: "2s", pod.AnnotationBackOffMax: "5s"})),
			backoff.Default(), 1, []time.Duration{0, 2 * s, 4 * s, 5 * s, 5 * s}},
		{"the pod's for clean exits", aPod(said(map[string]string{pod.AnnotationBackOffSuccess: "500ms"})),
			backoff.Default(), 0, []time.Duration{500 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond}},
		{"the pod's for clean exits, of crashes", aPod(said(map[string]string{pod.AnnotationBackOffSuccess: "500ms"})),
			backoff.Default(), 1, []time.Duration{0, 10 * s, 20 * s}},
		{"a bad value is the node's", aPod(said(map[string]string{pod.AnnotationBackOffInitial: "soon"})), backoff.Default(), 1, []time.Duration{0, 10 * s, 20 * s}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n, want := range tc.want {
				w := newWorld(tc.pod)
				w.in.Policy = tc.policy
				for range n {
					w.runAndExit(t, tc.code)
				}
				w.runUntil(t)
				w.exits("web", tc.code)
				if got := held(t, w); got != want {
					t.Errorf("after end %d: held for %v, want %v", n+1, got, want)
				}
			}
		})
	}
}

// TestAnEarlyRestartHasItsPlaceInTheNodesBudget: without one the node's policy holds, and
// neither the pod's own waits nor the node's are longer for it.
func TestAnEarlyRestartHasItsPlaceInTheNodesBudget(t *testing.T) {
	own := aPod(func(p *v1.Pod) {
		p.Annotations = map[string]string{pod.AnnotationBackOffInitial: "100ms", pod.AnnotationBackOffMax: "100ms"}
	})
	w := crashes(t, own, 2) // the second restart was early
	w.runUntil(t)
	w.exits("web", 1)
	step := plan.Next(w.in)
	early, asked := step.EarlyRestarts["web"]
	if !asked || step.WakeAt.Sub(w.in.Now) != 20*time.Second {
		t.Fatalf("without a place: got %+v, woken after %v; want the node's 20s", step.EarlyRestarts, step.WakeAt.Sub(w.in.Now))
	}
	if wanted, otherwise := early.PodPolicyAt.Sub(w.in.Now), early.NodePolicyAt.Sub(w.in.Now); wanted != 100*time.Millisecond || otherwise != 20*time.Second {
		t.Errorf("got a place wanted after %v, otherwise after %v; want 100ms and 20s", wanted, otherwise)
	}
	early.GrantedAt = w.in.Now.Add(3 * time.Second)
	w.in.Memory = w.in.Memory.EarlyRestartGranted("web", early)
	step = plan.Next(w.in)
	if len(step.EarlyRestarts) > 0 || step.WakeAt.Sub(w.in.Now) != 3*time.Second {
		t.Errorf("with a place after 3s: got %+v, woken after %v", step.EarlyRestarts, step.WakeAt.Sub(w.in.Now))
	}
	if why := step.Waiting["web"]; !strings.HasPrefix(why.Message, "back-off 3s restarting") {
		t.Errorf("got %q, want the wait that holds", why.Message)
	}
	w.in.Now = w.in.Now.Add(3 * time.Second)
	if step = plan.Next(w.in); len(step.Start) != 1 || len(step.Memory.EarlyRestarts) > 0 {
		t.Errorf("at its place: got %s and places %+v, want it started and its place gone", describe(step), step.Memory.EarlyRestarts)
	}
}

// runUntil acts, and sleeps, until web has run for a moment.
func (w *world) runUntil(t *testing.T) {
	t.Helper()
	for range 20 {
		if w.running("web") {
			w.in.Now = w.in.Now.Add(10 * time.Millisecond)
			return
		}
		if step := w.act(t); step.Idle() && !step.WakeAt.IsZero() {
			w.in.Now = step.WakeAt
		}
	}
	t.Fatalf("web does not run: %+v", w.in.Observed)
}

func (w *world) runAndExit(t *testing.T, code int32) {
	t.Helper()
	w.runUntil(t)
	w.exits("web", code)
}

func TestTenMinutesOfHealthEndTheBackOff(t *testing.T) {
	w := crashes(t, aPod(), 5)
	w.runUntil(t)
	w.in.Now = w.in.Now.Add(10 * time.Minute)
	w.exits("web", 1)
	if got := held(t, w); got != 0 {
		t.Errorf("after ten minutes of health: held for %v, want a start at once", got)
	}
	w.runAndExit(t, 1)
	if got := held(t, w); got != 10*time.Second {
		t.Errorf("after the next crash: held for %v, want 10s", got)
	}
}

// A boot leaves the containers of before dead, and podd without memory.
func TestNoWaitAfterABoot(t *testing.T) {
	for _, p := range []*v1.Pod{aPod(), aPod(inits("a", "mesh!"))} {
		w := newWorld(p)
		w.settleInits(t)
		for range 6 {
			w.runAndExit(t, 1)
		}
		if held(t, w) == 0 {
			t.Fatal("not held back before the boot")
		}
		w.boot()
		began := w.in.Now
		w.settleInits(t)
		if !w.running("web") || w.in.Now.Sub(began) > 0 {
			t.Errorf("%d init containers: web runs: %v, %v after the boot; want at once", len(p.Spec.InitContainers), w.running("web"), w.in.Now.Sub(began))
		}
	}
}

// settleInits acts until web runs; init containers succeed. Nobody sleeps.
func (w *world) settleInits(t *testing.T) {
	t.Helper()
	for range 20 {
		if c := w.latest("a"); c != nil && c.State == pod.ContainerRunning {
			w.exit(c, 0)
		}
		w.act(t)
	}
}

// boot ends everything, and podd; a minute passes.
func (w *world) boot() {
	w.in.Now = w.in.Now.Add(time.Minute)
	for i := range w.in.Observed.Sandboxes {
		w.in.Observed.Sandboxes[i].Ready, w.in.Observed.Sandboxes[i].IPs = false, nil
	}
	for i := range w.in.Observed.Containers {
		if c := &w.in.Observed.Containers[i]; c.State == pod.ContainerRunning {
			w.exit(c, 255)
		}
	}
	w.crash()
}

func TestRetryEndsEveryWait(t *testing.T) {
	w := crashes(t, aPod(), 6)
	if held(t, w) == 0 {
		t.Fatal("not held back before")
	}
	w.in.Memory = w.in.Memory.BackOffReset()
	if got := held(t, w); got != 0 {
		t.Errorf("held for %v, want a start at once", got)
	}
	if w.runAndExit(t, 1); held(t, w) != 10*time.Second {
		t.Errorf("then held for %v, want the delays from the beginning", held(t, w))
	}
	in := input(aPod(), observed(ready(0)))
	in.Memory = plan.Memory{}.Failed("web", "", pod.Waiting{Reason: "CreateContainerError"}, noon).BackOffReset()
	if got := describe(plan.Next(in)); got != "create web-0" {
		t.Errorf("after a failed create: got %s, want create web-0", got)
	}
}

// What failed was another container: upstream's key of a back-off has the image
// and the resources in it.
func TestAChangedSpecStartsOver(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1.Container)
		want   time.Duration
	}{
		{"image", func(c *v1.Container) { c.Image = "web:2" }, 0},
		{"resources", func(c *v1.Container) {
			c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		}, 0},
		{"something else", func(c *v1.Container) { c.TTY = true }, 40 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := crashes(t, aPod(), 4)
			plan.Next(w.in)
			changed := aPod(with("web", tc.change))
			w.in.Granted = &pod.Desired{Pod: changed, Source: pod.SourceAPIServer}
			if got := held(t, w); got != tc.want {
				t.Errorf("held for %v, want %v", got, tc.want)
			}
		})
	}
	in := input(aPod(), observed(ready(0)))
	in.Memory = plan.Next(in).Memory.Failed("web", "", pod.Waiting{Reason: "CreateContainerError"}, noon)
	in.Granted = &pod.Desired{Pod: aPod(with("web", func(c *v1.Container) { c.Image = "web:2" }))}
	if step := plan.Next(in); describe(step) != "create web-0" || waits(step) != "web=ContainerCreating" {
		t.Errorf("after a failed create of another image: got %s, %s", describe(step), waits(step))
	}
}

func TestRestartCountsNeverGoDown(t *testing.T) {
	w := crashes(t, aPod(), 3)
	w.runUntil(t)
	w.act(t)
	w.in.Observed.Containers = nil // somebody removed them all
	if got, want := describe(plan.Next(w.in)), "create web-4"; got != want {
		t.Errorf("without a record: got %s, want %s", got, want)
	}
	in := input(aPod(), observed(ready(0)))
	in.Memory = plan.Memory{}.WithRestartCounts(map[string]int32{"web": 7})
	if got, want := describe(plan.Next(in)), "create web-7"; got != want {
		t.Errorf("logs show six restarts: got %s, want %s", got, want)
	}
	in.Observed = observed(ready(0), web("exited 1", 0, 9))
	if got, want := describe(plan.Next(in)), "create web-10"; got != want {
		t.Errorf("the runtime shows nine: got %s, want %s", got, want)
	}
}

// Waiting reasons of what does not run yet: those with init containers are
// initializing, as every status of the kubelet has it.
func TestWhatAPodWithInitContainersWaitsFor(t *testing.T) {
	p := aPod(inits("a", "mesh!"), ephemerals("looker"))
	for _, tc := range []struct {
		name string
		seen pod.Observed
		want string
	}{
		{"no sandbox", observed(), "a=PodInitializing looker=PodInitializing mesh=PodInitializing web=PodInitializing"},
		{"the first runs", observed(ready(0), ctr("looker", "exited 0", 0, 0), ctr("a", "running", 0, 0)), "mesh=PodInitializing web=PodInitializing"},
		{"the first has completed", observed(ready(0), ctr("looker", "exited 0", 0, 0), ctr("a", "exited 0", 0, 0)), "mesh=PodInitializing web=PodInitializing"},
		{"all completed, a record is gone", observed(ready(0), ctr("looker", "running", 0, 0), web("running", 0, 0), ctr("mesh", "running", 0, 0)), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := waits(plan.Next(input(p, tc.seen))); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	in := input(p, observed(ready(0)))
	in.Memory = plan.Memory{}.Awaiting("a", pod.Waiting{Reason: "ContainerCreating", Message: "pulling"}).
		Awaiting("mesh", pod.Waiting{Reason: "ErrImagePull", Message: "no such host"})
	step := plan.Next(in)
	if got, want := step.Waiting["a"], (pod.Waiting{Reason: "PodInitializing", Message: "pulling"}); got != want {
		t.Errorf("during a pull: got %v, want %v", got, want)
	}
	if got, want := step.Waiting["mesh"].Reason, "ErrImagePull"; got != want {
		t.Errorf("after a failed pull: got %v, want %v", got, want)
	}
}

func TestBackOffShowsWhileSomethingElseOfThePodEnds(t *testing.T) {
	in := input(aPod(containers("web", "side"), with("side", livenessProbe)), observed(ready(0), ctr("side", "running", 0, 0), web("exited 1", 0, 3)))
	in.Memory.NodeBackOff = map[string]backoff.Entry{"web": {Delay: 40 * time.Second, Restarted: noon.Add(-10 * time.Second), Ended: noon.Add(-time.Minute)}}
	in.Probes = pod.ProbeResults{"side": {ContainerID: "side-0", Live: pod.ProbeFailed}}
	step := plan.Next(in)
	if got := describe(step); got != "stop side-0" || waits(step) != "web=CrashLoopBackOff" {
		t.Errorf("got %s, %s; want stop side-0, web in its back-off", got, waits(step))
	}
}

// What somebody kills, kill -9 by hand, is back as fast as what crashes.
func TestAContainerThatSomebodyKilledIsRestartedAtOnce(t *testing.T) {
	killed := web("exited 137", 0, 0)
	killed.FinishedAt = noon.Add(-10 * time.Millisecond)
	if got, want := describe(plan.Next(input(aPod(), observed(ready(0), killed)))), "create web-1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The sandbox of a pod that was killed to its end may be somebody's to stop.
func TestWhoseEndMayBeTheSandboxesToo(t *testing.T) {
	killed := web("exited 137", 0, 0)
	killed.FinishedAt = noon.Add(-100 * time.Millisecond)
	for name, tc := range map[string]struct {
		change func(*plan.Input, *pod.Container)
		want   string
	}{
		"killed":           {func(*plan.Input, *pod.Container) {}, "wake 200ms"},
		"out of memory":    {func(_ *plan.Input, c *pod.Container) { c.Reason = "OOMKilled" }, "stop-sandbox s0"},
		"failed by itself": {func(_ *plan.Input, c *pod.Container) { c.ExitCode = 1 }, "stop-sandbox s0"},
		"long ago":         {func(in *plan.Input, _ *pod.Container) { in.Now = noon.Add(time.Second) }, "stop-sandbox s0"},
		"in the future":    {func(_ *plan.Input, c *pod.Container) { c.FinishedAt = noon.Add(time.Hour) }, "stop-sandbox s0"},
	} {
		in := input(aPod(policy(v1.RestartPolicyNever)), observed(ready(0), killed))
		tc.change(&in, &in.Observed.Containers[0])
		if got := describe(plan.Next(in)); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
