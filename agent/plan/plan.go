package plan

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// Input is all that a decision rests on. Next changes none of it.
type Input struct {
	Phase pod.Phase
	// Granted is the pod as it is to run: what its source desires, with the resources
	// that the node granted (package allocation).
	Granted  *pod.Desired
	Observed pod.Observed
	// Kill is set once the pod has to terminate, and never revoked.
	Kill *Kill
	// End is set once the node decided to terminate the pod for good although its
	// source desires it, and never revoked. Next itself decides so for a deadline.
	End *pod.Termination
	// Completed is set once a Step said so, and never revoked: the runtime's records of
	// how the pod ended may be lost, and a pod completes once.
	Completed bool
	// StartTime is when the node accepted the pod, on the clock of Now:
	// activeDeadlineSeconds counts from it. Zero for a pod that was not accepted yet.
	StartTime time.Time
	// Probes are the prober's last results.
	Probes pod.ProbeResults
	// Contents identifies the contents of those ConfigMaps and Secrets that the pod
	// names and that exist; nil if nothing depends on them.
	Contents map[pod.ObjectKey]uint64
	// Epoch is that of Contents (pod.ContentHashes).
	Epoch string
	// PostStart are the hooks that this podd runs or ran, by container ID.
	PostStart map[string]pod.Hook
	// PendingStarts has, by name, the ID of each container that podd, or an earlier one,
	// began to start, without a record that this was done.
	PendingStarts map[string]string
	// AdmitResizeAt is when the node is to decide again about a resize that waits for
	// room; zero for never.
	AdmitResizeAt time.Time
	// Memory is what Next returned last; zero at first.
	Memory Memory
	// MemoryQoS has the node's rules. Containers that an earlier podd created may not follow
	// them yet.
	MemoryQoS pod.MemoryQoSRules
	// Policy is the node's back-off policy for restarts.
	Policy backoff.Policy
	// Now has a monotonic reading, so waits do not depend on the wall clock (except in
	// tests).
	Now time.Time
}

// Kill says that, and how, a pod has to terminate.
type Kill struct {
	// Grace is how long containers get between the stop signal and SIGKILL. It
	// may be shortened by a later Kill, never lengthened.
	Grace time.Duration
	// Reason is shown in the log.
	Reason string
}

// Step is what to do now. The fields are in the order in which they are
// performed; an empty step means that the pod is as it should be.
type Step struct {
	// Phase is where the worker is once the step is done.
	Phase pod.Phase
	// Stop stops containers, all at the same time.
	Stop []Stop
	// StopSandboxes stops sandboxes (and releases their network), newest first.
	StopSandboxes []string
	// ReleaseSandboxes are dead ones that a new one replaces. Nothing runs in
	// them, but one that died by itself still holds its network (address, host
	// ports) until the runtime is told to stop it.
	ReleaseSandboxes []string
	// CreateSandbox requests a sandbox with the number Attempt.
	CreateSandbox bool
	Attempt       uint32
	// Start starts containers, in this order, in Sandbox.
	Start   []Start
	Sandbox *pod.Sandbox
	// CleanUp requests the removal of everything that the pod has outside the
	// runtime: mounts, directories, cgroup.
	CleanUp bool
	// RemoveContainers and RemoveSandboxes are what is dead and no longer
	// needed for a status or for `logs --previous`.
	RemoveContainers []string
	RemoveSandboxes  []string
	// KeepLogs says that the logs of RemoveContainers stay: they show why they ended,
	// and restart counts continue from them.
	KeepLogs bool

	// Resize brings running containers to the resources that the spec names.
	Resize []Resize
	// ResizeHeld says that there is something to resize, and that the last attempt
	// has just failed.
	ResizeHeld bool

	// End is the Input's, or one that Next decided; the status shows it.
	End *pod.Termination
	// Overdue says, in one step at most, that a termination by the node takes too
	// long.
	Overdue bool
	// Waiting is why containers that should run do not, by name.
	Waiting map[string]pod.Waiting
	// BackOff names the containers that are held back in this step because
	// they crashed; the runtime has the dead one of each.
	BackOff []string
	// EarlyRestarts are restarts that need a place in the node's budget, by name. They
	// follow the node's policy in this Step: with their places in Memory, Next decides anew.
	EarlyRestarts map[string]EarlyRestart
	// Completed says that the pod has completed, or the node terminated it, and that no part
	// of it starts any more.
	Completed bool
	// Finished says that the pod has completed and that no part of it runs that could use its
	// volumes; they need not stay mounted.
	Finished bool
	// ChangedObjects are the objects with the change that the containers are restarted for,
	// in the step that begins the restart.
	ChangedObjects []pod.ObjectKey
	// RetryPulls says that pulls which are held back may succeed now.
	RetryPulls bool
	// SandboxChanged says, once for each sandbox, that it died although the pod still
	// needs one. It is reported before what is left in the dead one is stopped.
	SandboxChanged bool
	// RestartingAll says that a restart of all containers is in progress: the
	// condition AllContainersRestarting is true.
	RestartingAll bool
	// WakeAt is when to decide again without having been woken; zero for never.
	WakeAt time.Time
	// Memory is the Input's next Memory.
	Memory Memory
}

// Stop stops one container: its preStop hook, its turn, the stop signal, SIGKILL.
type Stop struct {
	ID, Name string
	// Grace is the total time from the beginning of the hook to SIGKILL; hook and
	// waiting for the turn use it up, except for the last 2 s, which are left after
	// the stop signal. 0 stays 0, no hook and SIGKILL at once, as the API documents
	// terminationGracePeriodSeconds ("stop immediately via the kill signal (no
	// opportunity to shut down)", k8s.io/api/core/v1, PodSpec). This deliberately
	// differs from the kubelet, which raises 0 to 1 s (calculateEffectiveGracePeriod
	// in pkg/kubelet/pod_workers.go), in which the hook runs, and gives the stop
	// signal 2 s (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime).
	Grace time.Duration
	// PreStop is the spec with the hook that runs first; nil for none.
	PreStop *v1.Container
	// After are IDs of this step's other stops that must have ended before the
	// stop signal is sent; not before the hook is run (KEP-753: sidecars end
	// last, in reverse order).
	After []string
	// Message is the event's, in the kubelet's words.
	Message string
	// Probe says that a failed liveness or startup probe is the cause.
	Probe bool
}

// Resize changes the resources of a running container, and of the pod around it.
// Without a container, only the pod's are to change.
type Resize struct {
	ID        string
	Container *v1.Container
}

// Start starts one container.
type Start struct {
	Container *v1.Container
	// ID is an existing container that was created and never started (podd crashed in
	// between); empty to create one.
	ID           string
	RestartCount int32
	// PostStart says that it has a postStart hook, which begins when it runs. The starts
	// after this one wait for that: once it was created or started, they are left to the
	// next step. The Input of that step has the state of the hook.
	PostStart bool
	// NoRetry says that a start which fails would be final.
	NoRetry bool
}

// Idle says that there is nothing to do now.
func (s *Step) Idle() bool {
	return len(s.Stop) == 0 && len(s.StopSandboxes) == 0 && !s.CreateSandbox && len(s.Start) == 0 &&
		len(s.RemoveContainers) == 0 && len(s.RemoveSandboxes) == 0 && len(s.Resize) == 0 && !s.CleanUp
}

// Creates says that the step creates a container.
func (s *Step) Creates() bool {
	return slices.ContainsFunc(s.Start, func(st Start) bool { return st.ID == "" })
}

// Next decides. It never fails: there is no combination of inputs without an
// answer.
func Next(in Input) Step {
	step := Step{Phase: in.Phase, End: in.End, Memory: in.Memory}
	switch {
	case in.Phase == pod.PhaseGone:
	case in.Phase == pod.PhaseTerminated:
		step.cleanUp(&in)
	case in.Phase == pod.PhaseTerminating || in.Kill != nil:
		step.terminate(&in)
	default:
		step.sync(&in)
	}
	step.overdue(&in)
	switch m := &step.Memory; {
	case !step.RestartingAll:
		m.RestartingSince = time.Time{}
	case m.RestartingSince.IsZero():
		m.RestartingSince = in.Now
	}
	return step
}

// sync brings a desired pod closer to running, or to completion.
func (s *Step) sync(in *Input) {
	s.Phase = pod.PhaseRunning
	s.learn(in)
	s.learnObjects(in)
	sources, completed := s.restartAllSources(in)
	completed = completed && !s.restartingForChange()
	if !completed && !in.Completed {
		s.deadline(in)
	}
	if s.End != nil || completed || in.Completed {
		s.finish(in)
		return
	}
	if !in.AdmitResizeAt.IsZero() {
		s.wakeAt(in.AdmitResizeAt)
	}
	if s.restartForChange(in) {
		return
	}
	if len(sources) > 0 {
		s.restartAll(in, sources)
		return
	}
	current := current(in)
	s.Sandbox = current
	if current == nil {
		s.stopAll(in)
		s.changeSandbox(in)
	} else {
		s.killStaleContainers(in, current)
		s.restartRequested(in)
		if s.stopFailing(in, current); s.probeEndsPod(in) {
			s.Stop = nil
			s.stopAll(in)
		}
		s.resize(in, current)
	}
	switch {
	case len(s.Stop)+len(s.StopSandboxes) > 0:
	case (current == nil || !in.Observed.InitContainersDone(&in.Granted.Pod.Spec, current.ID)) && !s.needsNewSandbox(in):
		s.markSandboxLost(in, current)
		return
	case current == nil:
		s.newSandbox(in)
	default:
		s.start(in, current)
		s.collect(in, current)
	}
	s.setWaitingReasons(in, current)
}

// start starts what is due in the current sandbox: init containers in their order,
// and the regular ones when those have completed.
func (s *Step) start(in *Input, current *pod.Sandbox) {
	s.startEphemeral(in, current)
	if s.startInitContainers(in, current) {
		s.startRegular(in, current)
	}
}

func (s *Step) setWaiting(name string, w pod.Waiting) {
	if s.Waiting == nil {
		s.Waiting = make(map[string]pod.Waiting)
	}
	s.Waiting[name] = w
}

// setWaitingReasons sets the waiting reason of every container that has yet to run (again)
// and has none so far.
func (s *Step) setWaitingReasons(in *Input, current *pod.Sandbox) {
	for spec, k := range pod.ContainerSpecs(&in.Granted.Pod.Spec) {
		if _, set := s.Waiting[spec.Name]; set {
			continue
		}
		c := in.Observed.LatestContainer(spec.Name)
		switch {
		case c == nil:
			if k == pod.InitContainer && current != nil && in.Observed.InitContainersDone(&in.Granted.Pod.Spec, current.ID) {
				continue // its record was collected
			}
		case c.State == pod.ContainerRunning || k == pod.EphemeralContainer:
			continue
		case k == pod.InitContainer && c.Succeeded(k):
			continue
		case k == pod.RegularContainer && s.done(in.Granted.Pod, spec, c):
			continue
		}
		s.setWaiting(spec.Name, s.nextStart(in, spec, k, current).waiting)
	}
}

func (s *Step) wakeAt(t time.Time) {
	if s.WakeAt.IsZero() || t.Before(s.WakeAt) {
		s.WakeAt = t
	}
}
