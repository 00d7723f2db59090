package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// world is a runtime with one pod, in which steps are performed at once.
type world struct {
	in     plan.Input
	made   int // sandboxes and containers so far
	counts map[string]int32
	chance *rand.Rand
}

// FuzzPlan performs steps on a runtime in which things die, get lost and come
// back at random, and checks after each what must always hold. Then the world
// keeps still: the plan must come to rest.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		for range 40 {
			if w.in.Phase < pod.PhaseTerminated { // later strays are the agent's business
				w.disturb()
			}
			w.act(t)
		}
		w.mustRest(t)
		w.in.Kill = &plan.Kill{Grace: time.Second}
		w.mustRest(t)
		if w.in.Phase != pod.PhaseGone || !w.in.Observed.Empty() {
			t.Fatalf("seed %d: after its end the pod is %v, and the runtime has %+v", seed, w.in.Phase, w.in.Observed)
		}
	})
}

func newWorld(seed uint64) *world {
	chance := rand.New(rand.NewPCG(seed, 1))
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	names := []string{"web", "side", "third"}[:1+chance.IntN(3)]
	p := aPod(containers(names...), policy(policies[chance.IntN(3)]))
	if chance.IntN(4) == 0 {
		hostNetwork(p)
	}
	w := &world{in: input(p, pod.Observed{UID: "u1"}), chance: chance, counts: make(map[string]int32)}
	w.in.Phase = pod.PhasePending
	for i := range chance.IntN(4) { // what a former podd may have left
		w.addSandbox(uint32(i), chance.IntN(2) == 0)
	}
	for range chance.IntN(4) {
		if len(w.in.Observed.Sandboxes) > 0 {
			sb := w.in.Observed.Sandboxes[chance.IntN(len(w.in.Observed.Sandboxes))]
			c := w.create(names[chance.IntN(len(names))], sb.ID)
			c.State = pod.ContainerState(chance.IntN(4))
		}
	}
	return w
}

func (w *world) addSandbox(attempt uint32, isReady bool) {
	w.made++
	sb := pod.Sandbox{ID: fmt.Sprintf("s%d", w.made), Attempt: attempt, Ready: isReady, CreatedAt: w.in.Now,
		HostNetwork: w.in.Desired.Pod.Spec.HostNetwork}
	if isReady && !sb.HostNetwork {
		sb.IPs = []string{"10.88.0.9"}
	}
	w.in.Observed.Sandboxes = slices.Insert(w.in.Observed.Sandboxes, 0, sb)
}

func (w *world) create(name, sandbox string) *pod.Container {
	w.made++
	c := pod.Container{ID: fmt.Sprintf("c%d", w.made), Name: name, SandboxID: sandbox, RestartCount: w.counts[name],
		State: pod.ContainerCreated, CreatedAt: w.in.Now}
	w.counts[name]++
	w.in.Observed.Containers = slices.Insert(w.in.Observed.Containers, 0, c)
	return &w.in.Observed.Containers[0]
}

// disturb does to the runtime what nobody asked for.
func (w *world) disturb() {
	o := &w.in.Observed
	w.in.Now = w.in.Now.Add(time.Duration(w.chance.IntN(30)) * time.Second)
	if n := len(o.Containers); n > 0 && w.chance.IntN(2) == 0 {
		c := &o.Containers[w.chance.IntN(n)]
		if c.State == pod.ContainerRunning {
			w.exit(c, int32(w.chance.IntN(2)))
		}
	}
	if n := len(o.Containers); n > 0 && w.chance.IntN(10) == 0 {
		if c := &o.Containers[w.chance.IntN(n)]; c.State == pod.ContainerRunning {
			c.State = pod.ContainerUnknown
		}
	}
	if n := len(o.Sandboxes); n > 0 && w.chance.IntN(8) == 0 {
		sb := &o.Sandboxes[w.chance.IntN(n)]
		sb.Ready, sb.IPs = false, nil
	}
	if w.chance.IntN(15) == 0 { // a create that was thought lost
		w.addSandbox(uint32(w.made+1), true)
	}
	if name := "web"; w.chance.IntN(10) == 0 && w.in.Phase == pod.PhaseRunning {
		w.in.Memory = w.in.Memory.Failed(name, "", pod.Waiting{Reason: "CreateContainerError"}, w.in.Now)
	}
	if w.chance.IntN(60) == 0 {
		w.in.Kill = &plan.Kill{Grace: time.Second}
	}
}

func (w *world) exit(c *pod.Container, code int32) {
	c.State, c.ExitCode, c.FinishedAt = pod.ContainerExited, code, w.in.Now
}

// act decides once and performs the step.
func (w *world) act(t *testing.T) plan.Step {
	t.Helper()
	before := w.in.Phase
	step := plan.Next(w.in)
	if err := w.in.Phase.Advance(step.Phase); err != nil {
		t.Fatalf("from %v: %v", before, err)
	}
	if len(step.Stop)+len(step.StopSandboxes) > 0 && (len(step.Start) > 0 || step.CreateSandbox) {
		t.Fatalf("a step stops and starts: %s", describe(step))
	}
	w.in.Memory = step.Memory
	w.end(step)
	if step.CreateSandbox {
		w.addSandbox(step.Attempt, true)
	}
	for _, st := range step.Start {
		c := w.find(st.ID)
		if st.ID == "" {
			c = w.create(st.Container.Name, w.in.Observed.Sandboxes[0].ID)
			if c.RestartCount != st.RestartCount {
				t.Fatalf("create %s with restart count %d, want %d", c.Name, st.RestartCount, c.RestartCount)
			}
		}
		c.State, c.StartedAt = pod.ContainerRunning, w.in.Now
	}
	w.remove(t, step)
	w.check(t, step)
	return step
}

func (w *world) find(id string) *pod.Container {
	for i := range w.in.Observed.Containers {
		if w.in.Observed.Containers[i].ID == id {
			return &w.in.Observed.Containers[i]
		}
	}
	return nil
}

func (w *world) end(step plan.Step) {
	for _, st := range step.Stop {
		w.exit(w.find(st.ID), 137)
	}
	for _, id := range step.StopSandboxes {
		for i := range w.in.Observed.Sandboxes {
			if sb := &w.in.Observed.Sandboxes[i]; sb.ID == id {
				sb.Ready, sb.IPs = false, nil
			}
		}
	}
}

func (w *world) remove(t *testing.T, step plan.Step) {
	t.Helper()
	o := &w.in.Observed
	for _, id := range step.RemoveContainers {
		if c := w.find(id); !step.CleanUp && (c.State == pod.ContainerRunning || c.State == pod.ContainerUnknown) {
			t.Fatalf("a container that may run is removed: %+v", c)
		}
		o.Containers = slices.DeleteFunc(o.Containers, func(c pod.Container) bool { return c.ID == id })
	}
	for _, id := range step.RemoveSandboxes {
		if !step.CleanUp && slices.ContainsFunc(o.Containers, func(c pod.Container) bool { return c.SandboxID == id }) {
			t.Fatalf("sandbox %s is removed with containers in it", id)
		}
		o.Sandboxes = slices.DeleteFunc(o.Sandboxes, func(s pod.Sandbox) bool { return s.ID == id })
	}
}

// check is what must hold after each step that started something.
func (w *world) check(t *testing.T, step plan.Step) {
	t.Helper()
	if !step.CreateSandbox && len(step.Start) == 0 {
		return
	}
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

// mustRest performs steps until one is idle and waits for nothing. Sandbox
// pace and back-offs apart, each needs one look; more than a few is a spin.
func (w *world) mustRest(t *testing.T) {
	t.Helper()
	for range 30 {
		before := w.in.Phase
		step := w.act(t)
		if !step.Idle() || w.in.Phase != before {
			continue
		}
		if step.WakeAt.IsZero() {
			return
		}
		if !step.WakeAt.After(w.in.Now) {
			t.Fatalf("an idle step asks to be woken in the past: %v", step.WakeAt.Sub(w.in.Now))
		}
		w.in.Now = step.WakeAt
	}
	t.Fatalf("no rest after 30 rounds: %+v", w.in.Observed)
}
