package nodeshutdown

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// Period is how long the pods of a range of priorities have to end. The ranges end one after the
// other, the one with the lowest priority first.
type Period struct {
	// Priority is the lowest of the range. Pods of a lower one than that of all ranges are in the
	// first.
	Priority int32
	Length   time.Duration
}

// maxDefault bounds the sum of the periods that DefaultPeriods returns.
const maxDefault = 5 * time.Minute

// DefaultPeriods are the periods of a machine whose configuration has none: other pods end first,
// then critical ones, and in each range the longest grace period counts. If the two are more than
// five minutes, the critical pods have what the others leave, and half of it at least if they need
// that.
func DefaultPeriods(pods []*v1.Pod) []Period {
	var longest, critical time.Duration
	for _, p := range pods {
		if pod.IsSystem(p) {
			critical = max(critical, plan.GracePeriod(p))
		} else {
			longest = max(longest, plan.GracePeriod(p))
		}
	}
	critical = min(critical, max(maxDefault/2, maxDefault-longest))
	return []Period{{0, min(longest, maxDefault-critical)}, {pod.SystemCriticalPriority, critical}}
}

// total is how long a shutdown may take.
func total(periods []Period) (sum time.Duration) {
	for _, p := range periods {
		sum += p.Length
	}
	return sum
}

// podsOf returns the pods in the range of that index. The periods are in the order of
// priorities.
func podsOf(periods []Period, index int, all []*v1.Pod) (found []*v1.Pod) {
	for _, p := range all {
		of := 0
		for i, period := range periods {
			if pod.Priority(p) >= period.Priority {
				of = i
			}
		}
		if of == index {
			found = append(found, p)
		}
	}
	return found
}

// sorted returns the periods in the order of priorities.
func sorted(periods []Period) []Period {
	return slices.SortedFunc(slices.Values(periods), func(a, b Period) int { return int(int64(a.Priority) - int64(b.Priority)) })
}
