package status

import (
	"slices"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Messages of container states, in the kubelet's words.
const (
	messageLost        = "The container could not be located when the pod was terminated"
	messageWasRunning  = "The container could not be located when the pod was deleted.  The container used to be Running"
	messageRestartAll  = "The container is removed because RestartAllContainers in place"
	messageHook        = "its postStart hook has not completed yet"
	messageInitAssumed = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"

	// exitCodeUnknown stands for the exit code of a container that vanished.
	exitCodeUnknown = 137
	// maxPodMessages bounds all termination messages of a pod together, in
	// bytes (pkg/kubelet/container/runtime.go).
	maxPodMessages = 12 * 1024
)

type kind int

const (
	kindRegular kind = iota
	kindInit
	kindEphemeral
)

// containerStatuses returns a status for each container of the spec: init containers
// in the order of the spec, the others by name, as the kubelet lists them.
func (c *computation) containerStatuses(specs []v1.Container, previous []v1.ContainerStatus, k kind) []v1.ContainerStatus {
	if len(specs) == 0 {
		return nil
	}
	all := make([]v1.ContainerStatus, 0, len(specs))
	for i := range specs {
		all = append(all, c.containerStatus(&specs[i], pod.FindContainerStatus(previous, specs[i].Name), k))
	}
	if k != kindInit {
		slices.SortStableFunc(all, func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

func (c *computation) containerStatus(spec *v1.Container, old *v1.ContainerStatus, k kind) v1.ContainerStatus {
	latest, before := c.observed(spec.Name)
	hooked := latest != nil && latest.State != pod.ContainerExited && c.report.PostStartRunning[latest.ID] && !c.ending()
	if hooked {
		// Its postStart hook is under way: the kubelet shows what was before.
		latest, before = before, c.predecessor(before)
	}
	var s v1.ContainerStatus
	if latest == nil {
		s = c.absentStatus(spec, old, k)
	} else {
		s = c.presentStatus(spec, latest, old)
		if before != nil {
			if last := c.state(before, nil); last.Terminated != nil {
				s.LastTerminationState = last
			}
		}
	}
	if k == kindRegular {
		s.AllocatedResourcesStatus = c.report.Devices[spec.Name]
	}
	c.applyWaiting(&s, k)
	c.stillWaiting(&s, old)
	if hooked || latest != nil && c.report.WillRestart[latest.ID] {
		c.stillRunning(spec, &s, old)
	}
	if w := s.State.Waiting; hooked && w != nil && w.Message == "" && firstStart(w.Reason) {
		w.Message = messageHook // the kubelet leaves people to guess
	}
	return s
}

// stillWaiting keeps showing a waiting reason (back-off, a hook that failed) that is
// over, until the dead container's successor is made: a new start says nothing new about
// its end.
func (c *computation) stillWaiting(s, old *v1.ContainerStatus) {
	if s.State.Terminated == nil || old == nil || old.ContainerID != s.ContainerID || c.ending() {
		return
	}
	if w := old.State.Waiting; w != nil && w.Reason != "" && !firstStart(w.Reason) {
		s.LastTerminationState, s.State = s.State, v1.ContainerState{Waiting: w.DeepCopy()}
	}
}

// stillRunning keeps showing a container that was stopped to be restarted as running if its
// restart policy would not have it restarted. An apiserver takes such an end for the last one
// and refuses every later status in which the container runs. A kubelet stops and starts in
// one sync, and shows nothing in between.
func (c *computation) stillRunning(spec *v1.Container, s, old *v1.ContainerStatus) {
	end := s.State.Terminated
	if end == nil || old == nil || old.ContainerID != s.ContainerID || old.State.Running == nil || c.ending() {
		return
	}
	if !pod.ShouldRestart(&c.pod.Spec, spec, end.ExitCode, hasFailed(pod.RegularContainer, end)) {
		s.State = old.State
	}
}

// firstStart says that a reason to wait is one of a container that is being made.
func firstStart(reason string) bool {
	return reason == pod.ReasonContainerCreating || reason == pod.ReasonPodInitializing
}

// observed returns the newest container of that name and the one before it.
func (c *computation) observed(name string) (latest, before *pod.Container) {
	latest = c.report.Observed.LatestContainer(name)
	return latest, c.predecessor(latest)
}

// predecessor returns the container that this one succeeded; nil for none.
func (c *computation) predecessor(successor *pod.Container) (before *pod.Container) {
	if successor == nil {
		return nil
	}
	all := c.report.Observed.Containers
	for i := range all {
		if o := &all[i]; o.Name == successor.Name && o.RestartCount < successor.RestartCount &&
			(before == nil || o.RestartCount > before.RestartCount) {
			before = o
		}
	}
	return before
}

// absentStatus is the status of a container that the runtime does not have: not
// made yet, or made and lost.
func (c *computation) absentStatus(spec *v1.Container, old *v1.ContainerStatus, k kind) v1.ContainerStatus {
	reason := pod.ReasonContainerCreating
	if len(c.pod.Spec.InitContainers) > 0 {
		reason = pod.ReasonPodInitializing
	}
	s := v1.ContainerStatus{
		Name:         spec.Name,
		Image:        spec.Image,
		State:        v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
		VolumeMounts: c.volumeMounts(spec),
	}
	if old != nil {
		if c.restartingAll() && old.State.Waiting == nil && !c.ending() && !pod.IsPhaseTerminal(c.previous.Phase) {
			return removedToRestart(s, old)
		}
		if old.State.Terminated != nil {
			return *old
		}
		if w := old.State.Waiting; w != nil && w.Reason == pod.ReasonRestartingAllContainers && len(c.report.Observed.Containers) == 0 && !c.ending() {
			s.State = old.State // until the first of them is made anew, however long that takes
		}
		s.LastTerminationState = old.LastTerminationState
		vanished := old.State.Running != nil && s.LastTerminationState.Terminated == nil
		if vanished {
			s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
				Reason: pod.ReasonContainerStatusUnknown, Message: messageWasRunning, ExitCode: exitCodeUnknown,
			}
		}
		s.RestartCount = restarts(0, old, vanished && c.pod.DeletionTimestamp == nil)
	}
	// An init container that is gone while a regular one exists has done its
	// work; its record was collected, unless it was removed to be made anew.
	if k == kindInit && !pod.IsSidecar(spec) && c.anyRegularCreated() && !c.restartingAll() {
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: pod.ReasonCompleted, Message: messageInitAssumed,
		}}
	}
	return s
}

// restartingAll says that all containers are being removed to be made anew: the
// worker says so, or said so the last time.
func (c *computation) restartingAll() bool {
	for _, all := range [][]v1.PodCondition{c.report.Conditions, c.previous.Conditions} {
		if now := condition(all, v1.AllContainersRestarting); now != nil && now.Status == v1.ConditionTrue {
			return true
		}
	}
	return false
}

// removedToRestart is the status of a container that was removed to be made
// anew. It did not fail, whatever its end was.
func removedToRestart(s v1.ContainerStatus, old *v1.ContainerStatus) v1.ContainerStatus {
	s.RestartCount = restarts(0, old, true)
	s.State.Waiting = &v1.ContainerStateWaiting{Reason: pod.ReasonRestartingAllContainers, Message: messageRestartAll}
	s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
		Reason: pod.ReasonRestartingAllContainers, Message: messageRestartAll, ExitCode: exitCodeUnknown,
	}
	return s
}

func (c *computation) anyRegularCreated() bool {
	for i := range c.pod.Spec.Containers {
		if latest, _ := c.observed(c.pod.Spec.Containers[i].Name); latest != nil {
			return true
		}
	}
	return false
}

// presentStatus is the status of a container that the runtime has.
func (c *computation) presentStatus(spec *v1.Container, seen *pod.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	s := v1.ContainerStatus{
		Name:         spec.Name,
		Image:        seen.Image,
		ImageID:      seen.ImageID,
		ContainerID:  c.id(seen),
		StopSignal:   stopSignal(spec),
		VolumeMounts: c.volumeMounts(spec),
	}
	s.AllocatedResources, s.Resources = c.containerResources(spec, seen)
	if s.Image == "" {
		s.Image = spec.Image
	}
	if u := seen.User; u != nil {
		s.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: u.UID, GID: u.GID, SupplementalGroups: slices.Clone(u.SupplementalGroups)}}
	}
	if old != nil {
		last := old.LastTerminationState
		if old.ContainerID != s.ContainerID && old.State.Terminated != nil {
			last = v1.ContainerState{Terminated: old.State.Terminated}
		}
		if last.Terminated != nil && last.Terminated.ContainerID != s.ContainerID {
			s.LastTerminationState = last // of a former container, not of this one
		}
	}
	s.State = c.state(seen, old)
	unseen := old != nil && (isLost(&s.State) && old.State.Running != nil ||
		s.State.Running != nil && old.State.Terminated != nil && old.ContainerID != s.ContainerID && old.RestartCount >= seen.RestartCount)
	s.RestartCount = restarts(seen.RestartCount, old, unseen)
	return s
}

// restarts is a container's restart count: the attempt, which the worker counts and the
// runtime keeps (0 where it has none). It is never less than was shown before. It is one
// more than that for an end that no attempt counts, because nobody saw it or its
// container was removed.
func restarts(attempt int32, old *v1.ContainerStatus, uncounted bool) int32 {
	switch {
	case old == nil:
		return attempt
	case uncounted:
		return max(attempt, old.RestartCount+1)
	}
	return max(attempt, old.RestartCount)
}

// stopSignal is the signal that the pod asks for. If it asks for none, the status shows
// none, as with a kubelet with its default feature gates.
func stopSignal(spec *v1.Container) *v1.Signal {
	if spec.Lifecycle == nil || spec.Lifecycle.StopSignal == nil {
		return nil
	}
	signal := *spec.Lifecycle.StopSignal
	return &signal
}

func isLost(s *v1.ContainerState) bool {
	return s.Terminated != nil && s.Terminated.Reason == pod.ReasonContainerStatusUnknown && s.Terminated.Message == messageLost
}

// state translates the runtime's state. A container in an unknown state that was running,
// or was already reported lost, counts as ended: nobody knows better, and calling it
// waiting could run a once-only pod twice.
func (c *computation) state(seen *pod.Container, old *v1.ContainerStatus) v1.ContainerState {
	switch seen.State {
	case pod.ContainerRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: seconds(seen.StartedAt)}}
	case pod.ContainerExited:
		started := seen.StartedAt
		// containerd notes a start once it has returned from it, and an end when it came.
		if started.After(seen.FinishedAt) && !seen.FinishedAt.IsZero() {
			started = seen.FinishedAt
		}
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    seen.ExitCode,
			Reason:      seen.Reason,
			Message:     seen.Message,
			StartedAt:   seconds(started),
			FinishedAt:  seconds(seen.FinishedAt),
			ContainerID: c.id(seen),
		}}
	case pod.ContainerUnknown:
		if old != nil && old.ContainerID == c.id(seen) && (old.State.Running != nil || isLost(&old.State)) {
			return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason: pod.ReasonContainerStatusUnknown, Message: messageLost, ExitCode: exitCodeUnknown,
			}}
		}
	case pod.ContainerCreated:
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
}

// applyWaiting puts the worker's reason over the state of a container that does not run
// but will. Its last end stays visible as the last state. The reasons of the
// very first start never hide how a container ended: the kubelet shows it as
// terminated until its successor runs or fails to.
func (c *computation) applyWaiting(s *v1.ContainerStatus, k kind) {
	why, ok := c.report.Waiting[s.Name]
	if !ok || s.State.Running != nil || c.ending() {
		return
	}
	if t := s.State.Terminated; t != nil {
		if k == kindInit && completed(t) {
			return
		}
		if firstStart(why.Reason) {
			return
		}
		s.LastTerminationState = s.State
	}
	if w := s.State.Waiting; w != nil && w.Reason == pod.ReasonRestartingAllContainers && firstStart(why.Reason) {
		return
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// terminateContainers gives every container an end, once no part of the pod runs any more.
// A container without a record of its end counts as failed.
func (c *computation) terminateContainers(s *v1.PodStatus) {
	end := func(statuses []v1.ContainerStatus) {
		for i := range statuses {
			if statuses[i].State.Terminated == nil {
				statuses[i].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
					Reason: pod.ReasonContainerStatusUnknown, Message: messageLost, ExitCode: exitCodeUnknown,
				}}
			}
		}
	}
	if c.everInitialized(s) {
		end(s.ContainerStatuses)
	}
	end(startedPrefix(s.InitContainerStatuses))
}

// everInitialized says that all init containers had completed at some time.
func (c *computation) everInitialized(s *v1.PodStatus) bool {
	if len(c.pod.Spec.InitContainers) == 0 {
		return true
	}
	for _, cs := range s.ContainerStatuses {
		if cs.LastTerminationState.Terminated != nil || cs.State.Waiting == nil {
			return true
		}
	}
	if c.static() {
		return false // as for the kubelet, which asks the status of the manifest
	}
	last := s.InitContainerStatuses[len(s.InitContainerStatuses)-1]
	if pod.IsSidecar(&c.pod.Spec.InitContainers[len(c.pod.Spec.InitContainers)-1]) {
		return last.State.Running != nil && last.Started != nil && *last.Started
	}
	for _, state := range []v1.ContainerState{last.State, last.LastTerminationState} {
		if completed(state.Terminated) {
			return true
		}
	}
	return false
}

// startedPrefix is the init containers up to the last that shows a sign of
// having started, and at least the first.
func startedPrefix(all []v1.ContainerStatus) []v1.ContainerStatus {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].State.Waiting == nil || all[i].LastTerminationState.Terminated != nil {
			return all[:i+1]
		}
	}
	return all[:min(1, len(all))]
}

func (c *computation) id(seen *pod.Container) string {
	name := c.options.RuntimeName
	if name == "" {
		name = "containerd"
	}
	return name + "://" + seen.ID
}

func (c *computation) volumeMounts(spec *v1.Container) []v1.VolumeMountStatus {
	var all []v1.VolumeMountStatus
	for _, m := range spec.VolumeMounts {
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled && c.options.RecursiveReadOnly {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		all = append(all, s)
	}
	return all
}

// limitMessages keeps the termination messages of one pod within 12 KiB, shared
// evenly by its containers.
func (c *computation) limitMessages(s *v1.PodStatus) {
	n := len(s.InitContainerStatuses) + len(s.ContainerStatuses) + len(s.EphemeralContainerStatuses)
	for cs := range pod.ContainerStatuses(s) {
		cs.State = withMessageLimit(cs.State, maxPodMessages/n)
		cs.LastTerminationState = withMessageLimit(cs.LastTerminationState, maxPodMessages/n)
	}
}

func withMessageLimit(s v1.ContainerState, limit int) v1.ContainerState {
	if s.Terminated == nil || len(s.Terminated.Message) <= limit {
		return s
	}
	short := *s.Terminated
	for limit > 0 && !utf8.RuneStart(short.Message[limit]) {
		limit--
	}
	short.Message = short.Message[:limit]
	s.Terminated = &short
	return s
}
