package apiserver

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

const (
	// maxStoredBytes bounds a stored pod. An apiserver takes no object over 1.5 MiB.
	maxStoredBytes = 4 << 20
	// maxStoredProblems bounds the reported problems.
	maxStoredProblems = 20
)

// readStored returns the stored pods, and a problem for each unusable file. It ignores pods of
// another cluster, and pods of a name that this node had before.
func (s *Source) readStored() (pods []*v1.Pod, problems []pod.Problem) {
	found, unusable := s.stored.ReadAll()
	for _, e := range found {
		if e.Origin == s.cfg.Server && e.Pod.Spec.NodeName == s.cfg.NodeName {
			pods = append(pods, e.Pod)
		}
	}
	for _, u := range unusable[:min(len(unusable), maxStoredProblems)] {
		problems = append(problems, pod.Problem{Origin: u.Path, Message: "a stored pod of the cluster is not started: " + u.Err.Error(),
			Hint: "the apiserver's answer replaces the file; without one, the pod does not run"})
	}
	if more := len(unusable) - maxStoredProblems; more > 0 {
		problems = append(problems, pod.Problem{Origin: s.stored.Dir, Message: fmt.Sprintf("%d more stored pods are not started for such reasons", more)})
	}
	return pods, problems
}
