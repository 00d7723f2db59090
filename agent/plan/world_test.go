package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// world is a runtime with one pod, in which steps are performed at once.
type world struct {
	in     plan.Input
	made   int              // sandboxes and containers so far
	counts map[string]int32 // restart count of the next container
	slept  time.Duration    // what settle waited, for back-offs and deadlines
}

func newWorld(p *v1.Pod) *world {
	w := &world{in: input(p, pod.Observed{UID: "u1"}), counts: make(map[string]int32)}
	w.in.Phase, w.in.StartTime = pod.PhasePending, noon
	w.in.Probes, w.in.PostStart = make(pod.ProbeResults), make(map[string]pod.Hook)
	return w
}

func (w *world) addSandbox(attempt uint32, isReady bool) {
	w.made++
	sb := pod.Sandbox{ID: fmt.Sprintf("s%d", w.made), Attempt: attempt, Ready: isReady, CreatedAt: w.in.Now,
		HostNetwork: w.in.Granted.Pod.Spec.HostNetwork}
	if isReady && !sb.HostNetwork {
		sb.IPs = []string{"10.88.0.9"}
	}
	w.in.Observed.Sandboxes = slices.Insert(w.in.Observed.Sandboxes, 0, sb)
}

func (w *world) create(name, sandbox string) *pod.Container {
	w.made++
	c := pod.Container{ID: fmt.Sprintf("c%d", w.made), Name: name, SandboxID: sandbox, RestartCount: w.counts[name],
		State: pod.ContainerCreated, CreatedAt: w.in.Now}
	c.ContentHashes = pod.ContentHashes{Epoch: w.in.Epoch, ByObject: w.in.Memory.Contents}
	if spec := w.spec(name); spec != nil {
		c.Hash = pod.ContainerHash(spec)
	}
	w.counts[name]++
	w.in.Observed.Containers = slices.Insert(w.in.Observed.Containers, 0, c)
	return &w.in.Observed.Containers[0]
}

func (w *world) spec(name string) *v1.Container {
	p := w.in.Granted.Pod
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func (w *world) latest(name string) *pod.Container { return w.in.Observed.LatestContainer(name) }

// running says that the newest container of that name runs.
func (w *world) running(name string) bool {
	c := w.latest(name)
	return c != nil && c.State == pod.ContainerRunning
}

func (w *world) exit(c *pod.Container, code int32) {
	c.State, c.ExitCode, c.FinishedAt = pod.ContainerExited, code, w.in.Now
}

// exits ends the newest container of that name.
func (w *world) exits(name string, code int32) { w.exit(w.latest(name), code) }

// probe sets the results of the newest container of that name.
func (w *world) probe(name string, startup, live pod.ProbeResult) {
	w.in.Probes[name] = pod.Probes{ContainerID: w.latest(name).ID, Startup: startup, Live: live}
}

func (w *world) hook(name string, state pod.HookState) {
	w.in.PostStart[w.latest(name).ID] = pod.Hook{State: state, Message: "the hook's own words"}
}

// crash is a podd that dies and starts again: all it knew is gone, but for the
// restart counts that logs show.
func (w *world) crash() {
	w.in.Memory = plan.Memory{}.WithRestartCounts(w.counts)
	clear(w.in.PostStart)
	clear(w.in.Probes)
}

// act decides once and performs the step.
func (w *world) act(t *testing.T) plan.Step {
	t.Helper()
	before := w.in.Phase
	step := w.next()
	if err := w.in.Phase.Advance(step.Phase); err != nil {
		t.Fatalf("from %v: %v", before, err)
	}
	if step.Phase < pod.PhaseTerminated && len(step.Stop)+len(step.StopSandboxes) > 0 &&
		(len(step.Start) > 0 || step.CreateSandbox || len(step.RemoveContainers) > 0) {
		t.Fatalf("a step stops and does more: %s", describe(step))
	}
	w.mustBeInOrder(t, step)
	w.in.Memory, w.in.End = step.Memory, step.End
	w.end(t, step)
	if step.CreateSandbox {
		w.addSandbox(step.Attempt, true)
	}
	for _, st := range step.Start {
		w.start(t, st)
	}
	w.remove(t, step)
	return step
}

func (w *world) start(t *testing.T, st plan.Start) {
	t.Helper()
	c := w.find(st.ID)
	if st.ID == "" {
		c = w.create(st.Container.Name, w.in.Observed.Sandboxes[0].ID)
	}
	if c.RestartCount != st.RestartCount {
		t.Fatalf("start %s with restart count %d, want %d", c.Name, st.RestartCount, c.RestartCount)
	}
	c.State, c.StartedAt = pod.ContainerRunning, w.in.Now
	if spec := w.spec(c.Name); spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil {
		w.hook(c.Name, pod.HookRunning)
	}
}

func (w *world) find(id string) *pod.Container {
	for i := range w.in.Observed.Containers {
		if w.in.Observed.Containers[i].ID == id {
			return &w.in.Observed.Containers[i]
		}
	}
	return nil
}

func (w *world) end(t *testing.T, step plan.Step) {
	t.Helper()
	for _, st := range step.Stop {
		c := w.find(st.ID)
		if c == nil || c.State != pod.ContainerRunning && c.State != pod.ContainerUnknown {
			t.Fatalf("%s is stopped, which does not run: %s", st.ID, describe(step))
		}
		w.exit(c, 137)
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

// mustBeInOrder checks that the sidecars of a step wait for the regular
// containers that end in it, and that nobody waits in a circle.
func (w *world) mustBeInOrder(t *testing.T, step plan.Step) {
	t.Helper()
	place := make(map[string]int)
	for i, st := range step.Stop {
		place[st.ID] = i
	}
	ended := make(map[string]bool)
	for range step.Stop {
		for _, st := range step.Stop {
			ended[st.ID] = ended[st.ID] || !slices.ContainsFunc(st.After, func(id string) bool { return !ended[id] })
		}
	}
	if len(ended) != len(place) {
		t.Fatalf("stops wait for none of their step: %s", describe(step))
	}
	for id, done := range ended {
		if !done {
			t.Fatalf("%s waits for its turn for ever: %s", id, describe(step))
		}
	}
}

// settle acts until a step is idle and waits for nothing but what others do,
// and returns it. Sandbox pace and back-offs apart, each step needs one observation;
// more than a few is a spin.
func (w *world) settle(t *testing.T) plan.Step {
	t.Helper()
	for range 60 {
		before := w.in.Phase
		step := w.act(t)
		if !step.Idle() || w.in.Phase != before {
			continue
		}
		if step.WakeAt.IsZero() {
			return step
		}
		if !step.WakeAt.After(w.in.Now) {
			t.Fatalf("an idle step asks to be woken in the past: %v", step.WakeAt.Sub(w.in.Now))
		}
		w.slept += step.WakeAt.Sub(w.in.Now)
		w.in.Now = step.WakeAt
	}
	t.Fatalf("no rest after 60 steps: %+v", w.in.Observed)
	return plan.Step{}
}

// steps acts until a step is idle, without waiting, and writes the steps as
// one line.
func (w *world) steps(t *testing.T) string {
	t.Helper()
	all := ""
	for range 30 {
		step := w.act(t)
		if step.Idle() {
			return strings.TrimPrefix(all, "; ")
		}
		if did := w.named(step); did != "-" {
			all += "; " + did
		}
	}
	t.Fatalf("no idle step after 30 steps: %s", all)
	return ""
}

// named is describe with the names of containers instead of their IDs; what is
// removed for tidiness is left out.
func (w *world) named(step plan.Step) string {
	name := func(id string) string {
		if c := w.find(id); c != nil {
			return c.Name
		}
		return id
	}
	for i := range step.Stop {
		step.Stop[i].ID = step.Stop[i].Name
		step.Stop[i].After = slices.Clone(step.Stop[i].After)
		for j, id := range step.Stop[i].After {
			step.Stop[i].After[j] = name(id)
		}
	}
	if !step.RestartingAll {
		step.RemoveContainers, step.RemoveSandboxes = nil, nil
	}
	step.StopSandboxes, step.ReleaseSandboxes, step.WakeAt = nil, nil, time.Time{}
	return describe(step)
}

// next decides, as a node whose budget has room for every early restart.
func (w *world) next() plan.Step {
	step := plan.Next(w.in)
	if len(step.EarlyRestarts) == 0 {
		return step
	}
	for name, e := range step.EarlyRestarts {
		e.GrantedAt = e.PodPolicyAt
		w.in.Memory = w.in.Memory.EarlyRestartGranted(name, e)
	}
	return plan.Next(w.in)
}
