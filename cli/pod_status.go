package cli

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// summary is a pod's containers condensed for a table row.
type summary struct {
	status       string
	ready, total int
	restarts     int
	lastRestart  time.Time
}

// summarize condenses a pod as kubectl get pods does. The status is the most specific reason of
// the pod, its init containers, and its containers.
func summarize(p *v1.Pod) summary {
	s := summary{status: string(p.Status.Phase), total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	if s.status == "" {
		s.status = string(v1.PodPending)
	}
	initializing := s.init(p)
	if !initializing || isConditionTrue(p, v1.PodInitialized) {
		s.dropInitRestarts(p)
		s.regular(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case !pod.IsPhaseTerminal(p.Status.Phase):
		s.status = "Terminating"
	}
	return s
}

func isConditionTrue(p *v1.Pod, t v1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == t && c.Status == v1.ConditionTrue
	})
}

func sidecar(p *v1.Pod, name string) bool { return initKind(p, name) == pod.SidecarContainer }

// initKind distinguishes a sidecar from other init containers.
func initKind(p *v1.Pod, name string) pod.ContainerKind {
	_, kind := pod.ContainerSpec(&p.Spec, name)
	return kind
}

// init considers the init containers up to the first that has not completed, and reports
// whether there is one. It ignores later ones, as kubectl does.
func (s *summary) init(p *v1.Pod) bool {
	for i := range p.Spec.InitContainers {
		if pod.IsSidecar(&p.Spec.InitContainers[i]) {
			s.total++
		}
	}
	for i := range p.Status.InitContainerStatuses {
		cs := &p.Status.InitContainerStatuses[i]
		s.count(cs)
		switch end := cs.State.Terminated; {
		case end != nil && !pod.Failed(initKind(p, cs.Name), end.ExitCode, end.Reason):
		case sidecar(p, cs.Name) && cs.Started != nil && *cs.Started:
			if cs.Ready {
				s.ready++
			}
		case end != nil:
			s.status = "Init:" + terminationReason(end)
			return true
		case cs.State.Waiting != nil && cs.State.Waiting.Reason != "" && cs.State.Waiting.Reason != pod.ReasonPodInitializing:
			s.status = "Init:" + cs.State.Waiting.Reason
			return true
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
			return true
		}
	}
	return false
}

// dropInitRestarts drops the restarts of completed init containers, as kubectl does. Those of
// sidecars still count.
func (s *summary) dropInitRestarts(p *v1.Pod) {
	s.restarts, s.lastRestart = 0, time.Time{}
	for i := range p.Status.InitContainerStatuses {
		if cs := &p.Status.InitContainerStatuses[i]; sidecar(p, cs.Name) {
			s.count(cs)
		}
	}
}

func (s *summary) regular(p *v1.Pod) {
	running, failed := false, ""
	// From the last to the first, so that the first one's reason wins.
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		cs := &p.Status.ContainerStatuses[i]
		s.count(cs)
		switch {
		case cs.State.Waiting != nil && cs.State.Waiting.Reason != "":
			s.status = cs.State.Waiting.Reason
		case cs.State.Terminated != nil:
			s.status = terminationReason(cs.State.Terminated)
			if cs.State.Terminated.ExitCode != 0 {
				failed = s.status
			}
		case cs.Ready && cs.State.Running != nil:
			running = true
			s.ready++
		}
	}
	switch {
	case s.status != pod.ReasonCompleted:
	case running && isConditionTrue(p, v1.PodReady):
		s.status = "Running"
	case failed != "":
		s.status = failed
	case running:
		s.status = "NotReady"
	}
}

func (s *summary) count(cs *v1.ContainerStatus) {
	s.restarts += int(cs.RestartCount)
	if t := cs.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.lastRestart) {
		s.lastRestart = t.FinishedAt.Time
	}
}

func terminationReason(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
