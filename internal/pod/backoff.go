package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// With these annotations a pod overrides the node's back-off policy for restarts. Durations
// are in Go's notation (kubernetes/kubernetes#57291).
const (
	// AnnotationBackOffInitial is the back-off of a container's second restart; the
	// first has none.
	AnnotationBackOffInitial = "podd/restart-backoff-initial"
	// AnnotationBackOffMax is the longest back-off.
	AnnotationBackOffMax = "podd/restart-backoff-max"
	// AnnotationBackOffSuccess is the back-off of every restart after exit code 0,
	// which then does not count as a crash. Without it such an exit is treated like
	// any other.
	AnnotationBackOffSuccess = "podd/restart-backoff-success"
)

// MinBackOff and MaxBackOff are the limits of those annotations. A restart takes MinBackOff
// anyway: with less, the runtime would do nothing else.
const (
	MinBackOff = 100 * time.Millisecond
	MaxBackOff = 24 * time.Hour
)

// BackOff is a pod's own back-off policy; 0 means the node's.
type BackOff struct {
	Initial, Max, Success time.Duration
}

// BackOffOf reads a pod's annotations. It ignores each invalid value and returns an error
// that names its annotation.
func BackOffOf(p *v1.Pod) (BackOff, []error) {
	var b BackOff
	var errs []error
	for _, a := range []struct {
		key string
		to  *time.Duration
	}{
		{AnnotationBackOffInitial, &b.Initial},
		{AnnotationBackOffMax, &b.Max},
		{AnnotationBackOffSuccess, &b.Success},
	} {
		text, said := p.Annotations[a.key]
		if !said {
			continue
		}
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("annotation %s: %q is not a duration such as 500ms or 2m", a.key, text))
		case d < MinBackOff || d > MaxBackOff:
			errs = append(errs, fmt.Errorf("annotation %s: %s is not between %s and %s", a.key, text, MinBackOff, MaxBackOff))
		default:
			*a.to = d
		}
	}
	return b, errs
}
