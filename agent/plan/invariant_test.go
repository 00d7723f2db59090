package plan_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// chaos is a world in which things die, get lost and come back at random.
type chaos struct {
	*world
	*rand.Rand
	names []string
	// begun are the names that were started in each sandbox; a sandbox in which
	// a former podd left something has none, for nobody knows.
	begun map[string]map[string]bool
}

// FuzzPlan performs steps in a chaos and checks after each what must always
// hold. Then the world keeps still: the plan must come to rest, with everything
// running that should. In the end nothing of the pod may be left.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(600) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newChaos(seed)
		for range 60 {
			if w.in.Phase < pod.PhaseTerminated { // later strays are the agent's business
				w.disturb()
			}
			w.check(t, w.act(t))
		}
		if w.in.Phase <= pod.PhaseRunning {
			w.mustRun(t, seed)
		}
		w.in.Kill = &plan.Kill{Grace: time.Second}
		w.settle(t)
		if w.in.Phase != pod.PhaseGone || !w.in.Observed.Empty() {
			t.Fatalf("seed %d: after its end the pod is %v, and the runtime has %+v", seed, w.in.Phase, w.in.Observed)
		}
	})
}

func newChaos(seed uint64) *chaos {
	chance := rand.New(rand.NewPCG(seed, 1))
	p := aPod(containers([]string{"web", "side", "third"}[:1+chance.IntN(3)]...),
		inits([][]string{nil, nil, {"one"}, {"one", "two"}, {"one", "mesh!"}, {"mesh!", "logs!"}, {"mesh!", "one", "logs!", "two"}}[chance.IntN(7)]...),
		policy([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[chance.IntN(3)]))
	if chance.IntN(4) == 0 {
		hostNetwork(p)
	}
	if chance.IntN(5) == 0 {
		ephemerals("looker")(p)
	}
	if chance.IntN(6) == 0 {
		p.Spec.ActiveDeadlineSeconds = ptr(int64(chance.IntN(2000)))
	}
	w := &chaos{world: newWorld(p), Rand: chance, begun: make(map[string]map[string]bool)}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			w.names = append(w.names, list[i].Name)
			w.vary(&list[i], pod.IsSidecar(&list[i]) || len(p.Spec.InitContainers) == 0 || &list[i] == &p.Spec.Containers[0])
		}
	}
	for i := range chance.IntN(4) { // what a former podd may have left
		w.addSandbox(uint32(i), chance.IntN(2) == 0)
	}
	for range chance.IntN(4) {
		if len(w.in.Observed.Sandboxes) > 0 {
			sb := w.in.Observed.Sandboxes[chance.IntN(len(w.in.Observed.Sandboxes))]
			c := w.create(w.names[chance.IntN(len(w.names))], sb.ID)
			c.State = pod.ContainerState(chance.IntN(4))
			w.begun[sb.ID] = nil
		}
	}
	return w
}

// vary gives a container some of what makes it special.
func (w *chaos) vary(c *v1.Container, probed bool) {
	if w.IntN(6) == 0 {
		rule(v1.ContainerRestartRuleActionRestartAllContainers, 42)(c)
	}
	if w.IntN(6) == 0 {
		rule(v1.ContainerRestartRuleActionRestart, 1)(c)
	}
	if !probed {
		return
	}
	if w.IntN(3) == 0 {
		startupProbe(c)
	}
	if w.IntN(3) == 0 {
		livenessProbe(c)
	}
	if w.IntN(4) == 0 {
		postStart(c)
	}
	if w.IntN(4) == 0 {
		preStop(c)
	}
}

// disturb does to the runtime what nobody asked for.
func (w *chaos) disturb() {
	o := &w.in.Observed
	w.in.Now = w.in.Now.Add(time.Duration(w.IntN(30)) * time.Second)
	if n := len(o.Containers); n > 0 && w.IntN(2) == 0 {
		c := &o.Containers[w.IntN(n)]
		if c.State == pod.ContainerRunning {
			w.exit(c, []int32{0, 0, 1, 1, 42}[w.IntN(5)])
		}
	}
	if n := len(o.Containers); n > 0 && w.IntN(2) == 0 {
		w.report(&o.Containers[w.IntN(n)])
	}
	if n := len(o.Containers); n > 0 && w.IntN(10) == 0 {
		if c := &o.Containers[w.IntN(n)]; c.State == pod.ContainerRunning {
			c.State = pod.ContainerUnknown
		}
	}
	if n := len(o.Sandboxes); n > 0 && w.IntN(16) == 0 {
		sb := &o.Sandboxes[w.IntN(n)]
		sb.Ready, sb.IPs = false, nil
	}
	if n := len(o.Containers); n > 0 && w.in.Completed && w.IntN(4) == 0 { // by hand; before, nobody can know
		if c := o.Containers[w.IntN(n)]; c.State == pod.ContainerExited {
			o.Containers = slices.DeleteFunc(o.Containers, func(x pod.Container) bool { return x.ID == c.ID })
		}
	}
	if w.IntN(30) == 0 { // a create that was thought lost
		w.addSandbox(uint32(w.made+1), true)
	}
	w.meddle()
}

// report has a probe or a hook of a running container come to a result.
func (w *chaos) report(c *pod.Container) {
	spec := w.spec(c.Name)
	if c.State != pod.ContainerRunning || spec == nil {
		return
	}
	probes := w.in.Probes.ForContainer(c.Name, c.ID)
	probes.ContainerID = c.ID
	if spec.StartupProbe != nil {
		probes.Startup = pod.ProbeResult(1 + w.IntN(2))
	}
	if spec.LivenessProbe != nil {
		probes.Live = pod.ProbeResult(1 + w.IntN(2))
	}
	w.in.Probes[c.Name] = probes
	if w.in.PostStart[c.ID].State == pod.HookRunning {
		w.in.PostStart[c.ID] = pod.Hook{State: pod.HookSucceeded + pod.HookState(w.IntN(2)), Message: "words"}
	}
}

// meddle is what comes from elsewhere than the runtime.
func (w *chaos) meddle() {
	if w.IntN(10) == 0 && w.in.Phase == pod.PhaseRunning {
		w.in.Memory = w.in.Memory.Failed(w.names[w.IntN(len(w.names))], "", pod.Waiting{Reason: "CreateContainerError"}, w.in.Now)
	}
	if w.IntN(20) == 0 {
		w.crash()
	}
	if w.IntN(20) == 0 {
		w.in.Memory = w.in.Memory.BackOffReset()
	}
	if w.IntN(30) == 0 { // another image, as an apiserver may send it
		d := *w.in.Granted
		d.Pod = d.Pod.DeepCopy()
		d.Pod.Spec.Containers[0].Image += "x"
		w.in.Granted = &d
	}
	if w.IntN(100) == 0 {
		w.in.End = &pod.Termination{Reason: pod.ReasonEvicted}
	}
	if w.IntN(100) == 0 {
		w.in.Kill = &plan.Kill{Grace: time.Second}
	}
}

// check is what must hold after each step.
func (w *chaos) check(t *testing.T, step plan.Step) {
	t.Helper()
	if w.in.Completed && (step.CreateSandbox || len(step.Start) > 0) {
		t.Fatalf("a pod that had completed goes on: %s", describe(step))
	}
	if w.in.Phase <= pod.PhaseRunning && w.in.Completed && !step.Completed {
		t.Fatalf("a pod that had completed is not over any more: %s", describe(step))
	}
	if step.Completed && step.End == nil && !w.in.Completed && !w.hasRun() {
		t.Fatalf("a pod is given up and nothing says so: %+v", w.in.Observed)
	}
	w.in.Completed = w.in.Completed || step.Completed
	if step.End != nil && (step.CreateSandbox || len(step.Start) > 0) {
		t.Fatalf("a pod that was ended (%s) goes on: %s", step.End.Reason, describe(step))
	}
	if step.CreateSandbox || len(step.Start) > 0 {
		w.mustBeAlone(t, step)
	}
	if step.RestartingAll && len(step.RemoveContainers) > 0 {
		clear(w.begun)
	}
	for _, st := range step.Start {
		w.mustBeItsTurn(t, st.Container.Name, step)
	}
}

// hasRun says that the pod has come to an end by its containers: all regular
// ones have ended, or an init container has failed.
func (w *chaos) hasRun() bool {
	ended := 0
	for spec, kind := range pod.ContainerSpecs(&w.in.Granted.Pod.Spec) {
		c := w.latest(spec.Name)
		switch {
		case c == nil || c.State != pod.ContainerExited:
		case kind == pod.RegularContainer:
			ended++
		case kind == pod.InitContainer && c.ExitCode != 0:
			return true
		}
	}
	return ended == len(w.in.Granted.Pod.Spec.Containers)
}

// mustBeAlone: nothing runs twice.
func (w *chaos) mustBeAlone(t *testing.T, step plan.Step) {
	t.Helper()
	isReady, running := 0, make(map[string]int)
	for _, sb := range w.in.Observed.Sandboxes {
		if sb.Ready {
			isReady++
		}
	}
	for _, c := range w.in.Observed.Containers {
		if c.State == pod.ContainerRunning || c.State == pod.ContainerUnknown {
			running[c.Name]++
		}
	}
	if isReady > 1 {
		t.Fatalf("%d ready sandboxes after %s", isReady, describe(step))
	}
	for name, n := range running {
		if n > 1 {
			t.Fatalf("%d of %s run after %s", n, name, describe(step))
		}
	}
}

// mustBeItsTurn: what a container comes after had completed in this sandbox, if
// nothing that comes after it had begun there before.
func (w *chaos) mustBeItsTurn(t *testing.T, name string, step plan.Step) {
	t.Helper()
	sandbox := w.in.Observed.Sandboxes[0].ID
	begun, known := w.begun[sandbox]
	if known && begun == nil {
		return
	}
	if !known {
		begun = make(map[string]bool)
		w.begun[sandbox] = begun
	}
	defer func() { begun[name] = true }()
	if name == "looker" {
		if w.counts[name] > 1 {
			t.Fatalf("an ephemeral container is started twice: %s", describe(step))
		}
		return
	}
	p := w.in.Granted.Pod
	for i := range p.Spec.InitContainers {
		before := &p.Spec.InitContainers[i]
		if before.Name == name {
			return
		}
		if slices.ContainsFunc(w.names[i+1:], func(n string) bool { return begun[n] }) {
			continue
		}
		w.mustBeThrough(t, before, name, step)
	}
}

// mustBeThrough: an init container lets the next one start.
func (w *chaos) mustBeThrough(t *testing.T, before *v1.Container, next string, step plan.Step) {
	t.Helper()
	c := w.latest(before.Name)
	completed := c != nil && c.SandboxID == w.in.Observed.Sandboxes[0].ID
	if completed && pod.IsSidecar(before) {
		hook := w.in.PostStart[c.ID].State
		completed = hook != pod.HookRunning && hook != pod.HookFailed &&
			(before.StartupProbe == nil || w.in.Probes.ForContainer(c.Name, c.ID).Startup == pod.ProbeSucceeded)
	} else if completed {
		completed = c.Succeeded(pod.InitContainer)
	}
	if !completed {
		t.Fatalf("%s starts before %s has completed, which is %+v: %s", next, before.Name, c, describe(step))
	}
}

// mustRun keeps the world still, but for init containers that succeed and
// probes and hooks that do, until the plan rests: then everything runs that
// should, or the pod has completed.
func (w *chaos) mustRun(t *testing.T, seed uint64) {
	t.Helper()
	for i := range w.in.Observed.Containers {
		if c := &w.in.Observed.Containers[i]; c.State == pod.ContainerUnknown {
			c.State = pod.ContainerRunning
		}
	}
	var step plan.Step
	for range 12 {
		step = w.settle(t)
		w.in.Completed = w.in.Completed || step.Completed
		if !w.succeed() {
			break
		}
	}
	if step.Finished {
		return
	}
	if w.in.Completed {
		t.Fatalf("seed %d: a pod that had completed is not at it", seed)
	}
	p := w.in.Granted.Pod
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) && !w.running(c.Name) {
			t.Fatalf("seed %d: sidecar %s does not run: %+v\n%+v", seed, c.Name, step, w.in.Observed)
		}
	}
	for i := range p.Spec.Containers {
		spec := &p.Spec.Containers[i]
		c := w.latest(spec.Name)
		if !w.running(spec.Name) && (c == nil || pod.ShouldRestart(&p.Spec, spec, c.ExitCode, c.ExitCode != 0)) {
			t.Fatalf("seed %d: %s does not run: %+v\n%+v", seed, spec.Name, step, w.in.Observed)
		}
	}
}

// succeed lets what is under way come to a good end, and says whether anything
// was.
func (w *chaos) succeed() bool {
	any := false
	for i := range w.in.Observed.Containers {
		c := &w.in.Observed.Containers[i]
		spec := w.spec(c.Name)
		if c.State != pod.ContainerRunning || spec == nil || c.ID != w.latest(c.Name).ID {
			continue
		}
		if slices.Index(w.names, c.Name) < len(w.in.Granted.Pod.Spec.InitContainers) && !pod.IsSidecar(spec) {
			w.exit(c, 0)
			any = true
			continue
		}
		good := pod.Probes{ContainerID: c.ID, Startup: pod.ProbeSucceeded, Live: pod.ProbeSucceeded}
		if w.in.Probes[c.Name] != good {
			w.in.Probes[c.Name], any = good, true
		}
		if w.in.PostStart[c.ID].State == pod.HookRunning {
			w.in.PostStart[c.ID], any = pod.Hook{State: pod.HookSucceeded}, true
		}
	}
	return any
}
