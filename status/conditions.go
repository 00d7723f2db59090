package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// Reasons of conditions, the kubelet's (pkg/kubelet/status/generate.go).
const (
	ReasonPodCompleted             = "PodCompleted"
	ReasonPodFailed                = "PodFailed"
	ReasonContainersNotReady       = "ContainersNotReady"
	ReasonContainersNotInitialized = "ContainersNotInitialized"
	ReasonReadinessGatesNotReady   = "ReadinessGatesNotReady"
	ReasonRestartAllStarted        = "RestartAllContainersStarted"
	ReasonPodSandboxNotReady       = "PodSandboxNotReady"

	messageRestartRule = "container exited with restart policy rule"
)

// conditionState is a condition before it has its times.
type conditionState struct {
	status          v1.ConditionStatus
	reason, message string
}

var conditionTrue = conditionState{status: v1.ConditionTrue}

// setConditions sets the pod's conditions, in the kubelet's order.
func (c *computation) setConditions(s *v1.PodStatus) {
	for _, old := range c.previous.Conditions {
		if !pod.OwnsCondition(old.Type) {
			s.Conditions = append(s.Conditions, old)
		}
	}
	for _, t := range []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress, v1.DisruptionTarget} {
		c.addReported(s, t)
	}
	sandbox := c.sandboxReady()
	initialized := c.initialized(s)
	containers := c.containersReady(s)
	ready := c.ready(s, containers)
	c.addCondition(s, v1.PodReadyToStartContainers, sandbox, c.sandboxSince(sandbox))
	c.addCondition(s, v1.PodInitialized, initialized, c.initializedSince(s, initialized))
	c.addCondition(s, v1.PodReady, ready, c.readySince(s, ready))
	c.addCondition(s, v1.ContainersReady, containers, c.readySince(s, containers))
	c.addCondition(s, v1.PodScheduled, conditionTrue, s.StartTime.Time)
	if couldRestartAll(c.pod) {
		restarting := c.allRestarting(s)
		c.addCondition(s, v1.AllContainersRestarting, restarting, c.restartingSince(restarting))
	}
}

// addReported adds a condition as the worker reported it. If the worker no longer reports
// it, a disruption stays true, and a resize is over.
func (c *computation) addReported(s *v1.PodStatus, t v1.PodConditionType) {
	now, old := condition(c.report.Conditions, t), condition(c.previous.Conditions, t)
	switch {
	case now == nil && old != nil && t == v1.DisruptionTarget:
		s.Conditions = append(s.Conditions, *old)
	case now != nil:
		c.addCondition(s, t, conditionState{now.Status, now.Reason, now.Message}, now.LastTransitionTime.Time)
		added := &s.Conditions[len(s.Conditions)-1]
		added.LastProbeTime = now.LastProbeTime
		if now.ObservedGeneration != 0 {
			added.ObservedGeneration = now.ObservedGeneration // of the spec that is being resized to
		}
	}
}

// couldRestartAll says that some container has a rule that restarts them all, or
// that changes of objects do.
func couldRestartAll(p *v1.Pod) bool {
	if onChange, _ := pod.RestartOnChange(p); onChange {
		return true
	}
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if kind != pod.EphemeralContainer && slices.ContainsFunc(c.RestartPolicyRules, restartsAll) {
			return true
		}
	}
	return false
}

func restartsAll(rule v1.ContainerRestartRule) bool {
	return rule.Action == v1.ContainerRestartRuleActionRestartAllContainers
}

// allRestarting: containers are being stopped and removed to be made anew.
func (c *computation) allRestarting(s *v1.PodStatus) conditionState {
	now := condition(c.report.Conditions, v1.AllContainersRestarting)
	switch {
	case s.Phase == v1.PodSucceeded:
		return conditionState{status: v1.ConditionFalse, reason: ReasonPodCompleted}
	case s.Phase == v1.PodFailed:
		return conditionState{status: v1.ConditionFalse, reason: ReasonPodFailed}
	case now == nil || now.Status != v1.ConditionTrue:
		return conditionState{status: v1.ConditionFalse}
	}
	return conditionState{v1.ConditionTrue, ReasonRestartAllStarted, messageRestartRule}
}

// restartingSince: without a restart there was none from the start of the pod
// on.
func (c *computation) restartingSince(v conditionState) time.Time {
	if now := condition(c.report.Conditions, v1.AllContainersRestarting); now != nil && v.status == v1.ConditionTrue {
		return now.LastTransitionTime.Time
	}
	if condition(c.previous.Conditions, v1.AllContainersRestarting) == nil {
		return c.startTime().Time
	}
	return time.Time{}
}

// addCondition appends the condition. Its time moves only when its status does. since is
// the time of the fact that explains the status; zero if that is unknown, which means the
// time of the sync.
func (c *computation) addCondition(s *v1.PodStatus, t v1.PodConditionType, v conditionState, since time.Time) {
	old := condition(c.previous.Conditions, t)
	at := seconds(since)
	if at.IsZero() {
		at = seconds(c.report.At)
	}
	switch {
	case old == nil:
	case old.Status == v.status:
		at = old.LastTransitionTime
	case at.Before(&old.LastTransitionTime):
		at = old.LastTransitionTime
	}
	s.Conditions = append(s.Conditions, v1.PodCondition{
		Type:               t,
		ObservedGeneration: c.pod.Generation,
		Status:             v.status,
		Reason:             v.reason,
		Message:            v.message,
		LastTransitionTime: at,
		LastProbeTime:      metav1.Time{},
	})
}

func condition(all []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range all {
		if all[i].Type == t {
			return &all[i]
		}
	}
	return nil
}

// sandboxReady: there is one that containers can be started in. A pod that has ended gets no
// other one: the removal of its sandbox changes nothing.
func (c *computation) sandboxReady() conditionState {
	if had := condition(c.previous.Conditions, v1.PodReadyToStartContainers); had != nil && had.Status == v1.ConditionFalse && pod.IsPhaseTerminal(c.previous.Phase) {
		return conditionState{had.Status, had.Reason, had.Message}
	}
	if problem := c.report.Observed.SandboxProblem(&c.pod.Spec); problem != "" {
		return conditionState{v1.ConditionFalse, ReasonPodSandboxNotReady, problem}
	}
	return conditionTrue
}

// initialized: all init containers have completed, now or at some earlier time.
func (c *computation) initialized(s *v1.PodStatus) conditionState {
	var unknown, incomplete []string
	for i := range c.pod.Spec.InitContainers {
		spec := &c.pod.Spec.InitContainers[i]
		cs := pod.FindContainerStatus(s.InitContainerStatuses, spec.Name)
		switch {
		case cs == nil:
			unknown = append(unknown, spec.Name)
		case pod.IsSidecar(spec) && (cs.Started == nil || !*cs.Started), !pod.IsSidecar(spec) && !cs.Ready:
			incomplete = append(incomplete, spec.Name)
		}
	}
	if s.Phase == v1.PodSucceeded && len(unknown) == 0 {
		return conditionState{status: v1.ConditionTrue, reason: ReasonPodCompleted}
	}
	for _, cs := range s.ContainerStatuses {
		if cs.State.Running != nil || cs.State.Terminated != nil {
			return conditionTrue
		}
	}
	if len(unknown)+len(incomplete) == 0 {
		return conditionTrue
	}
	if old := condition(c.previous.Conditions, v1.PodInitialized); old != nil && old.Status == v1.ConditionTrue {
		return conditionTrue
	}
	return conditionState{v1.ConditionFalse, ReasonContainersNotInitialized, notReadyMessage(unknown, "incomplete", incomplete)}
}

// containersReady: every regular container and every sidecar is ready.
func (c *computation) containersReady(s *v1.PodStatus) conditionState {
	var unknown, unready []string
	look := func(name string, statuses []v1.ContainerStatus) {
		switch cs := pod.FindContainerStatus(statuses, name); {
		case cs == nil:
			unknown = append(unknown, name)
		case !cs.Ready:
			unready = append(unready, name)
		}
	}
	for i := range c.pod.Spec.InitContainers {
		if pod.IsSidecar(&c.pod.Spec.InitContainers[i]) {
			look(c.pod.Spec.InitContainers[i].Name, s.InitContainerStatuses)
		}
	}
	for i := range c.pod.Spec.Containers {
		look(c.pod.Spec.Containers[i].Name, s.ContainerStatuses)
	}
	switch {
	case s.Phase == v1.PodSucceeded && len(unknown) == 0:
		return conditionState{status: v1.ConditionFalse, reason: ReasonPodCompleted}
	case s.Phase == v1.PodFailed:
		return conditionState{status: v1.ConditionFalse, reason: ReasonPodFailed}
	case len(unknown)+len(unready) > 0:
		return conditionState{v1.ConditionFalse, ReasonContainersNotReady, notReadyMessage(unknown, "unready", unready)}
	}
	return conditionTrue
}

// ready: the containers are, and every readiness gate says so too.
func (c *computation) ready(s *v1.PodStatus, containers conditionState) conditionState {
	if containers.status != v1.ConditionTrue {
		return containers
	}
	var missing []string
	for _, gate := range c.pod.Spec.ReadinessGates {
		switch found := condition(s.Conditions, gate.ConditionType); {
		case found == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", string(gate.ConditionType)))
		case found.Status != v1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", string(gate.ConditionType), found.Status))
		}
	}
	if len(missing) > 0 {
		return conditionState{v1.ConditionFalse, ReasonReadinessGatesNotReady, strings.Join(missing, ", ")}
	}
	return conditionTrue
}

func notReadyMessage(unknown []string, word string, others []string) string {
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: %s", unknown))
	}
	if len(others) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", word, others))
	}
	return strings.Join(parts, ", ")
}

// sandboxSince: a sandbox is ready since its creation. If the pod never had one, that is so
// since the pod's start. Nobody records when a sandbox dies, so the last end of a container
// stands for it.
func (c *computation) sandboxSince(v conditionState) time.Time {
	all := c.report.Observed.Sandboxes
	switch {
	case v.status == v1.ConditionTrue:
		return all[0].CreatedAt
	case len(all) == 0 && condition(c.previous.Conditions, v1.PodReadyToStartContainers) == nil:
		return c.startTime().Time
	}
	var died time.Time
	for i := range c.report.Observed.Containers {
		died = later(died, c.report.Observed.Containers[i].FinishedAt)
	}
	return died
}

// initializedSince: a pod without init containers is initialized from its start
// on, others since the last of them completed, or a sidecar was up. Later
// containers of a sidecar do not count: none that began after a regular one.
func (c *computation) initializedSince(s *v1.PodStatus, v conditionState) time.Time {
	if v.status != v1.ConditionTrue || len(c.pod.Spec.InitContainers) == 0 {
		return c.startTime().Time
	}
	var completed time.Time
	for i, cs := range s.InitContainerStatuses {
		switch end := cs.State.Terminated; {
		case pod.IsSidecar(&c.pod.Spec.InitContainers[i]):
			completed = later(completed, startedAt(&cs))
		case end != nil:
			completed = later(completed, end.FinishedAt.Time)
		}
	}
	for _, cs := range s.ContainerStatuses {
		if t := startedAt(&cs); !t.IsZero() && t.Before(completed) {
			completed = t
		}
	}
	return completed
}

// startedAt is when a container began to run, or the one before it, according to its
// status; zero if the status does not say.
func startedAt(cs *v1.ContainerStatus) time.Time {
	for _, state := range []v1.ContainerState{cs.State, cs.LastTerminationState} {
		switch {
		case state.Running != nil:
			return state.Running.StartedAt.Time
		case state.Terminated != nil:
			return state.Terminated.StartedAt.Time
		}
	}
	return time.Time{}
}

// readinessOf are the containers that a pod's readiness depends on: sidecars and
// regular ones.
func (c *computation) readinessOf(s *v1.PodStatus) []v1.ContainerStatus {
	all := slices.Clone(s.ContainerStatuses)
	for i, cs := range s.InitContainerStatuses {
		if pod.IsSidecar(&c.pod.Spec.InitContainers[i]) {
			all = append(all, cs)
		}
	}
	return all
}

// readySince: a pod without probes is ready since its last container started. It is
// unready since the last of the unready containers ended, or else since the pod's start;
// since the pod's start also if one of its containers never ran. A probe's result is true
// from the sync on, and after a restart of podd from the start of the container on.
func (c *computation) readySince(s *v1.PodStatus, v conditionState) time.Time {
	var started, ended time.Time
	running, neverRan := false, false
	for _, cs := range c.readinessOf(s) {
		neverRan = neverRan || cs.State.Waiting != nil && cs.LastTerminationState.Terminated == nil
		for _, end := range []*v1.ContainerStateTerminated{cs.State.Terminated, cs.LastTerminationState.Terminated} {
			if end != nil && !cs.Ready {
				ended = later(ended, end.FinishedAt.Time)
			}
		}
		if cs.State.Running != nil {
			running = running || !cs.Ready
			started = later(started, cs.State.Running.StartedAt.Time)
		}
	}
	switch known := condition(c.previous.Conditions, v1.ContainersReady) != nil; {
	case v.status == v1.ConditionTrue && known && c.hasProbes():
		return time.Time{}
	case v.status == v1.ConditionTrue:
		return started
	case running && known:
		return time.Time{}
	case neverRan:
	case !ended.IsZero():
		return ended
	case running:
		return started
	}
	return c.startTime().Time
}
