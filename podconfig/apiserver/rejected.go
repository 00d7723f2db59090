package apiserver

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// maxRejected bounds the reported problems of pods with unusable names.
const maxRejected = 20

// reject records a pod that pod.CheckNames rejected, with the time of the first rejection.
func (s *Source) reject(p *v1.Pod, err error, old map[pod.UID]pod.Problem, now time.Time) {
	problem := pod.Problem{Origin: s.cfg.Server, Since: now,
		Message: fmt.Sprintf("pod %.100q of namespace %.100q is not started: %v", p.Name, p.Namespace, err),
		Hint:    "no apiserver accepts such a pod: check what answers at this address",
	}
	if before, ok := old[p.UID]; ok && before.Message == problem.Message {
		problem.Since = before.Since
	} else {
		s.log.Warn("rejected a pod of the apiserver: its names cannot be names of directories", "error", err)
	}
	s.rejected[p.UID] = problem
}

// rejections returns the problems of rejected pods, at most maxRejected.
func (s *Source) rejections() []pod.Problem {
	var out []pod.Problem
	for _, p := range s.rejected {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b pod.Problem) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Message, b.Message)) })
	if more := len(out) - maxRejected; more > 0 {
		out = append(out[:maxRejected], pod.Problem{Origin: s.cfg.Server, Since: out[maxRejected].Since,
			Message: fmt.Sprintf("%d more pods are not started for such reasons", more)})
	}
	return out
}
