package logrotate

import (
	"slices"
	"strings"
	"time"
)

const (
	// stampFormat is the kubelet's; it is in local time, as there.
	stampFormat  = "20060102-150405"
	suffixGzip   = ".gz"
	suffixTemp   = ".tmp" // a file that is not complete
	minimumFiles = 2
)

// rotatedName is what a live log is renamed to.
func rotatedName(log string, now time.Time) string { return log + "." + now.Format(stampFormat) }

// cleanupPlan says what to do with the files beside a live log.
type cleanupPlan struct {
	// Remove: half-made files, files that also exist compressed, and the oldest of the
	// surplus; oldest first, so that a reader loses the least.
	Remove []string
	// Compress, oldest first.
	Compress []string
}

// planCleanup makes the plan. names are all files that begin with the live log's name and a
// dot, in any order; keep is how many rotated files may stay; the newest of them is not
// compressed. busy is a half-made file that a worker is still writing.
func planCleanup(names []string, keep int, busy string) cleanupPlan {
	var plan cleanupPlan
	var rotated []string
	for _, n := range names {
		switch {
		case n == busy:
		case strings.HasSuffix(n, suffixTemp), !strings.HasSuffix(n, suffixGzip) && slices.Contains(names, n+suffixGzip):
			plan.Remove = append(plan.Remove, n)
		default:
			rotated = append(rotated, n)
		}
	}
	slices.Sort(rotated) // by time stamp
	if excess := len(rotated) - keep; excess > 0 {
		plan.Remove = append(plan.Remove, rotated[:excess]...)
		rotated = rotated[excess:]
	}
	for i, n := range rotated {
		if !strings.HasSuffix(n, suffixGzip) && i < len(rotated)-1 {
			plan.Compress = append(plan.Compress, n)
		}
	}
	return plan
}

// sizeSample is a log's size at one moment.
type sizeSample struct {
	size int64
	at   time.Time
}

// nextCheck says when a log should be checked before the interval is over. That is when
// it will have reached the limit if it goes on growing at the same rate, but not within
// soonest. It is zero for a log that will not get there within interval.
func nextCheck(before, now sizeSample, limit int64, interval, soonest time.Duration) time.Time {
	took, grown := now.at.Sub(before.at), now.size-before.size
	if took <= 0 || grown <= 0 {
		return time.Time{}
	}
	left := max(limit-now.size, 0)
	if float64(grown)*interval.Seconds() < float64(left)*took.Seconds() {
		return time.Time{}
	}
	until := time.Duration(float64(left) / float64(grown) * float64(took))
	return now.at.Add(max(until, soonest))
}
