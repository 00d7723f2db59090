package eviction

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/eviction/threshold"
	"podd/internal/bytesize"
	"podd/internal/pod"
)

// origin stands in problems where a manifest's path would.
const origin = "node"

// problems are the conditions that hold, for people; before are those of the last look.
func (s *state) problems(before []pod.Problem, d decision, seen Observations, now time.Time) []pod.Problem {
	var all []pod.Problem
	for _, c := range d.conditions {
		p := pod.Problem{Origin: origin, Field: string(c), Since: now, Hint: hints[c]}
		for i := range before {
			if before[i].Field == p.Field {
				p.Since = before[i].Since
			}
		}
		if why := metReasons(d.met, seen, c); len(why) > 0 {
			p.Message = strings.Join(why, "; ")
		} else {
			p.Message = fmt.Sprintf("there is enough again since %s; this is shown for %s after it was last short (evictionPressureTransitionPeriod)",
				s.lastObserved[c].UTC().Format(time.RFC3339), s.transition)
		}
		all = append(all, p)
	}
	return all
}

// hints tell the operator what to do.
var hints = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: "pods of a cluster are evicted until there is enough; the node's own pods are not: end one of them, or lower its use",
	v1.NodeDiskPressure:   "unused images and ended containers are removed, and pods of a cluster evicted, until there is enough; free space, or lower evictionHard",
	v1.NodePIDPressure:    "pods of a cluster are evicted until there is enough; find out what starts so many processes, and set podPidsLimit",
}

// metReasons are the thresholds that are met under a condition.
func metReasons(met []*threshold.Threshold, seen Observations, c v1.NodeConditionType) []string {
	var all []string
	for _, t := range met {
		if t.Signal.Condition() != c {
			continue
		}
		o := seen[t.Signal]
		limit := t.Value.QuantityOf(o.Capacity)
		all = append(all, fmt.Sprintf("%s is %s of %s, below the threshold of %s", t.Signal,
			formatAmount(t.Signal, o.Available), formatAmount(t.Signal, o.Capacity), formatAmount(t.Signal, limit.Value())))
	}
	return all
}

func formatAmount(s threshold.Signal, n int64) string {
	switch s.Resource() {
	case threshold.ResourceInodes, threshold.ResourcePIDs:
		return fmt.Sprint(n)
	}
	return bytesize.Format(n)
}
