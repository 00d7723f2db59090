package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// AnnotationProbeUntilSuccess is podd's own, on pods: the period of startup and
// readiness probes until their first success in a container
// (kubernetes/kubernetes#76951).
const AnnotationProbeUntilSuccess = "podd/probe-until-success"

// The limits of AnnotationProbeUntilSuccess.
const (
	MinProbePeriod = 10 * time.Millisecond
	MaxProbePeriod = time.Minute
)

// ProbeUntilSuccess returns the period in a pod's annotation, 0 if it has none. The error
// is meant for users; with an error, the period is 0.
func ProbeUntilSuccess(p *v1.Pod) (time.Duration, error) {
	text, ok := p.Annotations[AnnotationProbeUntilSuccess]
	if !ok {
		return 0, nil
	}
	pace, err := time.ParseDuration(text)
	if err != nil || pace < MinProbePeriod || pace > MaxProbePeriod {
		return 0, fmt.Errorf("annotation %s: %q is not a duration from %v to %v, such as 100ms",
			AnnotationProbeUntilSuccess, text, MinProbePeriod, MaxProbePeriod)
	}
	return pace, nil
}
