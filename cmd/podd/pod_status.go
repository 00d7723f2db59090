package main

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// summary is what a row of the table says of a pod's containers.
type summary struct {
	status       string
	ready, total int
	restarts     int
	lastRestart  time.Time
}

// summarize reads a pod as kubectl get pods does: the status is the reason that
// tells most, of the pod, of its init containers, of its containers.
func summarize(p *v1.Pod) summary {
	s := summary{status: string(p.Status.Phase), total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	if s.status == "" {
		s.status = string(v1.PodPending)
	}
	initializing := s.init(p)
	if !initializing || initialized(p) {
		s.forgetInit(p)
		s.regular(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed:
		s.status = "Terminating"
	}
	return s
}

func initialized(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodInitialized {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func sidecar(p *v1.Pod, name string) bool {
	for _, c := range p.Spec.InitContainers {
		if c.Name == name {
			return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
		}
	}
	return false
}

// init looks at the init containers and says whether one is not through yet.
func (s *summary) init(p *v1.Pod) bool {
	for _, c := range p.Spec.InitContainers {
		if sidecar(p, c.Name) {
			s.total++
		}
	}
	pending := false
	for i := range p.Status.InitContainerStatuses {
		cs := &p.Status.InitContainerStatuses[i]
		s.count(cs)
		isSidecar := sidecar(p, cs.Name)
		if isSidecar && cs.Ready && cs.State.Running != nil {
			s.ready++
		}
		through := cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0 && !isSidecar ||
			isSidecar && cs.Started != nil && *cs.Started
		if through || pending {
			continue
		}
		pending = true
		switch {
		case cs.State.Terminated != nil:
			s.status = "Init:" + ending(cs.State.Terminated)
		case cs.State.Waiting != nil && cs.State.Waiting.Reason != "" && cs.State.Waiting.Reason != "PodInitializing":
			s.status = "Init:" + cs.State.Waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
	}
	return pending
}

// forgetInit drops the restarts of init containers that are through, as kubectl
// does; those of sidecars count on.
func (s *summary) forgetInit(p *v1.Pod) {
	s.restarts, s.lastRestart = 0, time.Time{}
	for i := range p.Status.InitContainerStatuses {
		if cs := &p.Status.InitContainerStatuses[i]; sidecar(p, cs.Name) {
			s.count(cs)
		}
	}
}

func (s *summary) regular(p *v1.Pod) {
	running := false
	// From the last to the first, so that the first one's word stays.
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		cs := &p.Status.ContainerStatuses[i]
		s.count(cs)
		switch {
		case cs.State.Waiting != nil && cs.State.Waiting.Reason != "":
			s.status = cs.State.Waiting.Reason
		case cs.State.Terminated != nil:
			s.status = ending(cs.State.Terminated)
		case cs.Ready && cs.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status == "Completed" && running {
		s.status = "NotReady"
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				s.status = "Running"
			}
		}
	}
}

func (s *summary) count(cs *v1.ContainerStatus) {
	s.restarts += int(cs.RestartCount)
	if t := cs.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.lastRestart) {
		s.lastRestart = t.FinishedAt.Time
	}
}

func ending(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
