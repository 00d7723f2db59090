package plan

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// Reasons and messages of waiting containers, in the kubelet's words, which
// dashboards and people match on.
const (
	ReasonContainerCreating = "ContainerCreating"
	ReasonCrashLoopBackOff  = "CrashLoopBackOff"
)

// Input is all that a decision rests on. Next changes none of it.
type Input struct {
	Phase    pod.Phase
	Desired  *pod.Desired
	Observed pod.Observed
	// Kill is set once the pod has to end, and never taken back.
	Kill *Kill
	// Memory is what Next returned last; zero at first.
	Memory Memory
	// Policy is the restart curve of this node.
	Policy backoff.Policy
	Now    time.Time
}

// Kill says that, and how, a pod has to end.
type Kill struct {
	// Grace is how long containers get between the stop signal and SIGKILL. It
	// may be shortened by a later Kill, never lengthened.
	Grace time.Duration
	// Message is for the event and the log: why.
	Message string
}

// Memory is what has to be remembered between two decisions and cannot be seen
// in the runtime. Losing it (a restart of podd) costs nothing but a shorter
// wait. A Memory is a value: Next returns a changed copy.
type Memory struct {
	// Restarts is the back-off of each container, by name.
	Restarts map[string]backoff.Entry
	// Failures are starts that went wrong without leaving a container, by name.
	Failures map[string]Failure
}

// Failure is a start that left no container behind (no image, a configuration
// that cannot be made, a create that the runtime refused).
type Failure struct {
	Waiting pod.Waiting
	// Count is how often in a row.
	Count int
	// NotBefore is when the next try is worth it.
	NotBefore time.Time
}

// Step is what to do now. The fields are in the order in which they are
// performed; an empty step means that the pod is as it should be.
type Step struct {
	// Phase is where the worker is once the step is done.
	Phase pod.Phase
	// Stop ends containers, all at the same time.
	Stop []Stop
	// StopSandboxes ends sandboxes (and frees their network), newest first.
	StopSandboxes []string
	// CreateSandbox asks for a sandbox with the number Attempt.
	CreateSandbox bool
	Attempt       uint32
	// Start starts containers, in this order.
	Start []Start
	// RemoveContainers and RemoveSandboxes are what is dead and no longer
	// needed for a status or for `logs --previous`.
	RemoveContainers []string
	RemoveSandboxes  []string
	// CleanUp asks for everything else of the pod to go: mounts, directories,
	// cgroup.
	CleanUp bool

	// Waiting is why containers that should run do not, by name.
	Waiting map[string]pod.Waiting
	// BackOff names the containers that are held back in this step because
	// they crashed.
	BackOff []string
	// SandboxChanged says that the sandbox died under a pod that wants it.
	SandboxChanged bool
	// WakeAt is when to decide again without having been woken; zero for never.
	WakeAt time.Time
	// Memory is the Input's next Memory.
	Memory Memory
}

// Stop ends one container.
type Stop struct {
	ID, Name string
	Grace    time.Duration
	Message  string
}

// Start starts one container.
type Start struct {
	Container *v1.Container
	// ID is an existing container that was created and never started (podd
	// died in between); empty to create one.
	ID           string
	RestartCount int32
}

// Idle says that there is nothing to do now.
func (s *Step) Idle() bool {
	return len(s.Stop) == 0 && len(s.StopSandboxes) == 0 && !s.CreateSandbox && len(s.Start) == 0 &&
		len(s.RemoveContainers) == 0 && len(s.RemoveSandboxes) == 0 && !s.CleanUp
}

// Next decides. It never fails: there is no combination of inputs without an
// answer.
func Next(in Input) Step {
	step := Step{Phase: in.Phase, Memory: in.Memory}
	switch {
	case in.Phase == pod.PhaseGone:
	case in.Phase == pod.PhaseTerminated:
		step.cleanUp(&in)
	case in.Phase == pod.PhaseTerminating || in.Kill != nil:
		step.terminate(&in)
	default:
		step.sync(&in)
	}
	return step
}

// sync brings a wanted pod nearer to running.
func (s *Step) sync(in *Input) {
	s.Phase = pod.PhaseRunning
	current, superseded := sandboxes(in)
	for _, id := range superseded {
		s.stopSandbox(in, id, "Pod sandbox changed, it will be killed and re-created.")
	}
	if len(s.StopSandboxes) > 0 {
		s.SandboxChanged = current == nil && wantsSandbox(in)
		s.waitAll(in)
		return
	}
	if s.stopStrangers(in, current); len(s.Stop) > 0 {
		s.waitAll(in)
		return
	}
	if current == nil {
		s.newSandbox(in)
		return
	}
	s.containers(in, current)
	s.collect(in, current)
}

// sandboxes returns the sandbox that containers belong into, if there is one,
// and those that must be stopped first. More than one ready sandbox, a dead
// newest one, or one without an address is beyond repair and replaced, as in
// upstream's PodSandboxChanged.
func sandboxes(in *Input) (current *pod.Sandbox, stop []string) {
	all := in.Observed.Sandboxes
	if len(all) == 0 {
		return nil, nil
	}
	ready := 0
	for i := range all {
		if all[i].Ready {
			ready++
		}
	}
	newest := &all[0]
	usable := newest.Ready && ready == 1 && (newest.HostNetwork || len(newest.IPs) > 0) &&
		newest.HostNetwork == in.Desired.Pod.Spec.HostNetwork
	for i := range all {
		if all[i].Ready && !(usable && i == 0) {
			stop = append(stop, all[i].ID)
		}
	}
	if !usable {
		return nil, stop
	}
	return newest, stop
}

// stopStrangers stops what runs outside the current sandbox, what the spec
// does not name, and what is in an unknown state: it may be running, and a
// second one must not start beside it.
func (s *Step) stopStrangers(in *Input, current *pod.Sandbox) {
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		stray := current == nil || c.SandboxID != current.ID || specOf(in.Desired.Pod, c.Name) == nil
		switch {
		case c.State == pod.ContainerRunning && stray:
			s.stop(in, c, "Container "+c.Name+" is not part of the pod's sandbox")
		case c.State == pod.ContainerUnknown:
			s.stop(in, c, fmt.Sprintf("Container is in %q state, try killing it before restart", c.State))
		}
	}
}

func (s *Step) newSandbox(in *Input) {
	if !wantsSandbox(in) {
		return
	}
	s.CreateSandbox = true
	if len(in.Observed.Sandboxes) > 0 {
		s.Attempt = in.Observed.Sandboxes[0].Attempt + 1
		s.SandboxChanged = true
	}
	s.waitAll(in)
}

// wantsSandbox says whether any container is still to run. A pod that never
// restarts does not begin again in another sandbox once one of its containers
// was started.
func wantsSandbox(in *Input) bool {
	began := slices.ContainsFunc(in.Observed.Containers, func(c pod.Container) bool { return c.State != pod.ContainerCreated })
	if !began {
		return true
	}
	if in.Desired.Pod.Spec.RestartPolicy == v1.RestartPolicyNever {
		return false
	}
	for i := range in.Desired.Pod.Spec.Containers {
		c := in.Observed.Latest(in.Desired.Pod.Spec.Containers[i].Name)
		if c == nil || !done(in.Desired.Pod, c) {
			return true
		}
	}
	return false
}

// done says that a container has ended and its restart policy leaves it so.
func done(p *v1.Pod, c *pod.Container) bool {
	if c.State != pod.ContainerExited {
		return false
	}
	switch p.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return true
	case v1.RestartPolicyOnFailure:
		return c.ExitCode == 0
	default:
		return false
	}
}

// containers starts what should run in the current sandbox, and lets the
// sandbox go when nothing will ever run in it again.
func (s *Step) containers(in *Input, current *pod.Sandbox) {
	p := in.Desired.Pod
	alive := 0
	for i := range p.Spec.Containers {
		spec := &p.Spec.Containers[i]
		seen := in.Observed.Latest(spec.Name)
		switch {
		case seen == nil:
			alive++
			s.start(in, Start{Container: spec})
		case seen.State == pod.ContainerRunning:
			alive++
			s.forgetFailure(spec.Name)
		case seen.State == pod.ContainerCreated && seen.SandboxID == current.ID:
			alive++
			s.start(in, Start{Container: spec, ID: seen.ID, RestartCount: seen.RestartCount})
		case done(p, seen):
		default:
			alive++
			s.restart(in, spec, seen, current)
		}
	}
	if alive == 0 {
		s.stopSandbox(in, current.ID, "Pod has run to its end")
	}
}

// restart starts the successor of a container that ended, now or when its
// back-off is over. A new sandbox is a new beginning: what ended with the old
// one does not wait.
func (s *Step) restart(in *Input, spec *v1.Container, seen *pod.Container, current *pod.Sandbox) {
	if seen.SandboxID == current.ID && seen.State == pod.ContainerExited {
		entry, ended := in.Memory.Restarts[spec.Name], endOf(seen)
		until := in.Policy.Until(entry, ended)
		if until.After(in.Now) {
			s.wait(spec.Name, pod.Waiting{
				Reason: ReasonCrashLoopBackOff,
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
					entry.Delay, spec.Name, in.Desired.Pod.Name, in.Desired.Pod.Namespace, in.Desired.Pod.UID),
			})
			s.BackOff = append(s.BackOff, spec.Name)
			s.wakeAt(until)
			return
		}
		if s.start(in, Start{Container: spec, RestartCount: seen.RestartCount + 1}) {
			s.remember(spec.Name, in.Policy.Restart(entry, ended, in.Now))
		}
		return
	}
	s.start(in, Start{Container: spec, RestartCount: seen.RestartCount + 1})
}

// endOf is when a container ended, or the best guess where the runtime lost
// the record; it is never the same for two containers.
func endOf(c *pod.Container) time.Time {
	for _, t := range []time.Time{c.FinishedAt, c.StartedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return c.CreatedAt
}

// start puts a container on the list unless its last try failed just now.
func (s *Step) start(in *Input, st Start) bool {
	name := st.Container.Name
	if f, failed := in.Memory.Failures[name]; failed {
		s.wait(name, f.Waiting)
		if f.NotBefore.After(in.Now) {
			s.wakeAt(f.NotBefore)
			return false
		}
	} else {
		s.wait(name, pod.Waiting{Reason: ReasonContainerCreating})
	}
	s.Start = append(s.Start, st)
	return true
}

// collect lists what is dead and superseded: of each container the newest dead
// one is kept (for its last state and `logs --previous`), of the sandboxes the
// newest.
func (s *Step) collect(in *Input, current *pod.Sandbox) {
	kept := make(map[string]bool)
	inUse := map[string]bool{current.ID: true}
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		switch {
		case c.State == pod.ContainerCreated && c.SandboxID != current.ID:
			s.RemoveContainers = append(s.RemoveContainers, c.ID)
		case c.State != pod.ContainerExited:
			inUse[c.SandboxID] = true
		case !kept[c.Name]:
			kept[c.Name] = true
			inUse[c.SandboxID] = true
		default:
			s.RemoveContainers = append(s.RemoveContainers, c.ID)
		}
	}
	for i := range in.Observed.Sandboxes {
		if sb := &in.Observed.Sandboxes[i]; !sb.Ready && !inUse[sb.ID] {
			s.RemoveSandboxes = append(s.RemoveSandboxes, sb.ID)
		}
	}
}

// terminate ends every container, then every sandbox.
func (s *Step) terminate(in *Input) {
	s.Phase = pod.PhaseTerminating
	for i := range in.Observed.Containers {
		if c := &in.Observed.Containers[i]; c.State == pod.ContainerRunning || c.State == pod.ContainerUnknown {
			s.stop(in, c, "Stopping container "+c.Name)
		}
	}
	for i := range in.Observed.Sandboxes {
		if sb := &in.Observed.Sandboxes[i]; sb.Ready {
			s.StopSandboxes = append(s.StopSandboxes, sb.ID)
		}
	}
	if len(s.Stop) == 0 && len(s.StopSandboxes) == 0 && in.Phase == pod.PhaseTerminating {
		s.Phase = pod.PhaseTerminated
	}
}

// cleanUp removes what the runtime still holds, then everything else.
func (s *Step) cleanUp(in *Input) {
	s.Phase = pod.PhaseGone
	s.CleanUp = true
	for i := range in.Observed.Containers {
		s.RemoveContainers = append(s.RemoveContainers, in.Observed.Containers[i].ID)
	}
	for i := range in.Observed.Sandboxes {
		s.RemoveSandboxes = append(s.RemoveSandboxes, in.Observed.Sandboxes[i].ID)
	}
}

// stopSandbox stops a sandbox and, before it, the containers that run in it.
func (s *Step) stopSandbox(in *Input, id, message string) {
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if c.SandboxID == id && (c.State == pod.ContainerRunning || c.State == pod.ContainerUnknown) {
			s.stop(in, c, message)
		}
	}
	s.StopSandboxes = append(s.StopSandboxes, id)
}

func (s *Step) stop(in *Input, c *pod.Container, message string) {
	grace := GracePeriod(in.Desired.Pod)
	if in.Kill != nil {
		grace, message = in.Kill.Grace, fallback(in.Kill.Message, message)
	}
	s.Stop = append(s.Stop, Stop{ID: c.ID, Name: c.Name, Grace: grace, Message: message})
}

// GracePeriod is the pod's own, 30 s where it does not say.
func GracePeriod(p *v1.Pod) time.Duration {
	if p.Spec.TerminationGracePeriodSeconds == nil {
		return v1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
}

func (s *Step) wait(name string, w pod.Waiting) {
	if s.Waiting == nil {
		s.Waiting = make(map[string]pod.Waiting)
	}
	s.Waiting[name] = w
}

// waitAll marks every container that has yet to run (again).
func (s *Step) waitAll(in *Input) {
	for i := range in.Desired.Pod.Spec.Containers {
		name := in.Desired.Pod.Spec.Containers[i].Name
		if c := in.Observed.Latest(name); c == nil || !done(in.Desired.Pod, c) {
			s.wait(name, pod.Waiting{Reason: ReasonContainerCreating})
		}
	}
}

func (s *Step) wakeAt(t time.Time) {
	if s.WakeAt.IsZero() || t.Before(s.WakeAt) {
		s.WakeAt = t
	}
}

// remember and forgetFailure copy before they write: Memory is a value.
func (s *Step) remember(name string, e backoff.Entry) {
	next := make(map[string]backoff.Entry, len(s.Memory.Restarts)+1)
	for k, v := range s.Memory.Restarts {
		next[k] = v
	}
	next[name] = e
	s.Memory.Restarts = next
}

func (s *Step) forgetFailure(name string) {
	s.Memory = s.Memory.Succeeded(name)
}

// Succeeded returns the memory without name's failures.
func (m Memory) Succeeded(name string) Memory {
	if _, ok := m.Failures[name]; !ok {
		return m
	}
	next := make(map[string]Failure, len(m.Failures))
	for k, v := range m.Failures {
		if k != name {
			next[k] = v
		}
	}
	m.Failures = next
	return m
}

// Failed returns the memory with one more failure of name. notBefore is when
// the next try is worth it, if the failure itself says; zero for the default
// curve, which is 1 s doubling to 10 s: a create that was refused leaves
// nothing behind, so trying is cheap.
func (m Memory) Failed(name string, w pod.Waiting, notBefore, now time.Time) Memory {
	next := make(map[string]Failure, len(m.Failures)+1)
	for k, v := range m.Failures {
		next[k] = v
	}
	f := Failure{Waiting: w, Count: next[name].Count + 1, NotBefore: notBefore}
	if notBefore.IsZero() {
		f.NotBefore = now.Add(min(time.Second<<min(f.Count-1, 10), 10*time.Second))
	}
	next[name] = f
	m.Failures = next
	return m
}

func specOf(p *v1.Pod, name string) *v1.Container {
	i := slices.IndexFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Spec.Containers[i]
}

func fallback(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
