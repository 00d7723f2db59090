package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/backoff"
	"podd/internal/pod"
)

// nextStart is when, and as what, a container that does not run starts (again).
type nextStart struct {
	Start
	// at is when; a time not after now, or zero, means at once.
	at time.Time
	// waiting is its waiting reason until then; it changes at waitingChangesAt, if that is
	// not zero.
	waiting          pod.Waiting
	waitingChangesAt time.Time
	// crashed says that it is in back-off because it crashed.
	crashed bool
	// end is the end that the start follows; zero for none.
	end backoff.Exit
}

// nextStart decides about one container that does not run, whether or not the runtime has
// one.
func (s *Step) nextStart(in *Input, spec *v1.Container, k pod.ContainerKind, current *pod.Sandbox) nextStart {
	p := in.Granted.Pod
	d := nextStart{Start: Start{Container: spec, RestartCount: s.Memory.RestartCounts[spec.Name]}, waiting: pod.Waiting{Reason: defaultWaitingReason(p)}}
	seen := in.Observed.LatestContainer(spec.Name)
	f, failed := s.Memory.Failures[spec.Name]
	history := failed && seen != nil && seen.State == pod.ContainerExited && f.ID == seen.ID
	if failed {
		d.waiting = f.Waiting
		if d.waiting.Reason == pod.ReasonContainerCreating {
			d.waiting.Reason = defaultWaitingReason(p)
		}
	}
	if failed && !history {
		d.at = f.NotBefore
	}
	if seen != nil && seen.State == pod.ContainerCreated && current != nil && seen.SandboxID == current.ID {
		d.ID, d.RestartCount = seen.ID, seen.RestartCount
		return d
	}
	d.end = s.previousExit(spec.Name, k, seen, current)
	if d.end.At.IsZero() {
		return d
	}
	until, wait := s.backOff(in, spec.Name, d.end)
	if !until.After(in.Now) {
		return d
	}
	d.crashed = true
	if until.After(d.at) {
		d.at = until
	}
	if history && f.NotBefore.After(in.Now) {
		d.waitingChangesAt = f.NotBefore // as the kubelet does, what went wrong comes first
		return d
	}
	d.waiting = pod.Waiting{
		Reason:  pod.ReasonCrashLoopBackOff,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, spec.Name, p.Name, p.Namespace, p.UID),
	}
	return d
}

// defaultWaitingReason is the default waiting reason of a container.
func defaultWaitingReason(p *v1.Pod) string {
	if len(p.Spec.InitContainers) > 0 {
		return pod.ReasonPodInitializing
	}
	return pod.ReasonContainerCreating
}

// previousExit is the end that a start would follow; zero if that was not a crash. An
// init container that succeeded runs again because of a new sandbox; so does one that
// was created for an earlier sandbox and never ran: its start may have failed because
// that sandbox was dying.
func (s *Step) previousExit(name string, k pod.ContainerKind, seen *pod.Container, current *pod.Sandbox) backoff.Exit {
	if seen == nil {
		return s.Memory.RemovedExits[name]
	}
	if seen.State != pod.ContainerExited || k == pod.InitContainer && seen.Succeeded(k) {
		return backoff.Exit{}
	}
	if seen.StartedAt.IsZero() && (current == nil || seen.SandboxID != current.ID) {
		return backoff.Exit{}
	}
	when := s.Memory.Times[name]
	end := backoff.Exit{At: when.FinishedAt, Success: seen.Succeeded(k)}
	if forced := s.Memory.ForcedRestarts[name]; forced.ID == seen.ID {
		if forced.SkipBackOff {
			return backoff.Exit{}
		}
		end.StartedAt, end.Success = when.StartedAt, false
	}
	return end
}

// endOf is when a container ended, or an estimate if the runtime lost the record.
func endOf(c *pod.Container) time.Time {
	for _, t := range []time.Time{c.FinishedAt, c.StartedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return c.CreatedAt
}

// codeStartError is the exit code of a container that could not be started.
const codeStartError = 128

func hasPostStart(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }

// startIfDue adds a container to the list of starts if it is due, and says whether it
// did.
func (s *Step) startIfDue(in *Input, spec *v1.Container, k pod.ContainerKind, current *pod.Sandbox) bool {
	d := s.nextStart(in, spec, k, current)
	s.setWaiting(spec.Name, d.waiting)
	if d.crashed && in.Observed.LatestContainer(spec.Name) != nil {
		s.BackOff = append(s.BackOff, spec.Name)
	}
	if !d.waitingChangesAt.IsZero() {
		s.wakeAt(d.waitingChangesAt)
	}
	if d.at.After(in.Now) {
		s.wakeAt(d.at)
		return false
	}
	if !d.end.At.IsZero() {
		s.restarted(in, spec.Name, d.end)
	}
	if d.ID == "" {
		d.RestartCount = int32(s.Memory.attempt(spec.Name, int64(d.RestartCount), in.Now))
	}
	d.PostStart = hasPostStart(spec)
	d.NoRetry = k == pod.EphemeralContainer || k != pod.SidecarContainer && !pod.ShouldRestart(&in.Granted.Pod.Spec, spec, codeStartError, true)
	s.Start = append(s.Start, d.Start)
	return true
}
