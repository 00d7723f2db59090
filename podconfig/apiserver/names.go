package apiserver

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"podd/internal/pod"
)

// maxRejected bounds the problems that are shown of pods with unusable names.
const maxRejected = 20

// checkNames rejects a pod whose names are no names: podd makes paths of them. An apiserver
// checks them, too, but whoever answers in its place would choose directories of this host.
// Every pod of this source passes it once, also those that were stored.
func checkNames(p *v1.Pod) error {
	switch {
	case len(p.UID) > 128 || len(validation.IsDNS1123Subdomain(string(p.UID))) > 0:
		return fmt.Errorf("%.100q is not a UID that can be the name of a directory", p.UID)
	case len(validation.IsDNS1123Subdomain(p.Name)) > 0:
		return fmt.Errorf("%.100q is not the name of a pod", p.Name)
	case len(validation.IsDNS1123Label(p.Namespace)) > 0:
		return fmt.Errorf("%.100q is not the name of a namespace", p.Namespace)
	}
	for c := range pod.ContainerSpecs(&p.Spec) {
		if len(validation.IsDNS1123Label(c.Name)) > 0 {
			return fmt.Errorf("%.100q is not the name of a container", c.Name)
		}
	}
	for i := range p.Spec.Volumes {
		if name := p.Spec.Volumes[i].Name; len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%.100q is not the name of a volume", name)
		}
	}
	return nil
}

// reject notes a pod that checkNames rejected, with the time of the first such answer.
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

// rejections are the problems of rejected pods, a bounded number.
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
