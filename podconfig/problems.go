package podconfig

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"podd/internal/pod"
)

func compare(a, b string) int { return cmp.Compare(a, b) }

// maxProblems bounds the number of problems that Problems returns.
const maxProblems = 500

// problemKey identifies a problem, so that it is logged only once.
type problemKey struct {
	source                 pod.Source
	origin, field, message string
	line                   int
}

// problemList holds the current problems of all sources.
type problemList struct {
	log     *slog.Logger
	metrics *metrics
	current map[problemKey]pod.Problem
	sorted  []pod.Problem
}

// replace takes the new whole list, keeps the time since when each problem is known, and logs
// problems that appeared and problems that went.
func (l *problemList) replace(by map[pod.Source][]pod.Problem, now time.Time) {
	next := map[problemKey]pod.Problem{}
	all := make([]pod.Problem, 0, len(l.sorted))
	for source, problems := range by {
		wrong := 0 // excludes warnings
		for _, p := range problems {
			key := problemKey{source, p.Origin, p.Field, p.Message, p.Line}
			if _, twice := next[key]; twice {
				continue
			}
			old, known := l.current[key]
			switch {
			case known:
				p.Since = old.Since
			case p.Since.IsZero():
				p.Since = now
			}
			next[key] = p
			all = append(all, p)
			switch {
			case p.Warning:
				if !known {
					l.log.Warn("manifest warning", attrs(source, p)...)
				}
				continue
			case !known:
				l.metrics.errors.WithLabelValues(string(source)).Inc()
				l.log.Warn("manifest problem", attrs(source, p)...)
			}
			wrong++
		}
		l.metrics.problems.WithLabelValues(string(source)).Set(float64(wrong))
	}
	for key, p := range l.current {
		if _, still := next[key]; !still {
			l.log.Info("manifest problem resolved", attrs(key.source, p)...)
		}
	}
	slices.SortFunc(all, func(a, b pod.Problem) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	if more := len(all) - maxProblems; more > 0 {
		all = append(all[:maxProblems:maxProblems], pod.Problem{Origin: all[maxProblems].Origin, Since: now,
			Message: fmt.Sprintf("there are %d more problems", more), Hint: "fix the first ones, or run podd validate on the files"})
	}
	l.current, l.sorted = next, all
}

func attrs(source pod.Source, p pod.Problem) []any {
	a := []any{"source", source, "at", p.Location(), "message", p.Message}
	for _, f := range [][2]string{{"field", p.Field}, {"hint", p.Hint}, {"pod", p.Pod}, {"object", p.Object}} {
		if f[1] != "" {
			a = append(a, f[0], f[1])
		}
	}
	if p.LastGoodInUse {
		a = append(a, "kept_running", true)
	}
	return a
}
