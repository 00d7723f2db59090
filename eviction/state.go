package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/eviction/threshold"
)

// Observation is how much there is of something, in bytes, inodes or process IDs.
type Observation struct {
	Available, Capacity int64
	// Time is when it was measured.
	Time time.Time
}

// Observations are those of the signals that could be measured.
type Observations map[threshold.Signal]Observation

// state is what the decisions of one look depend on, besides its observations.
type state struct {
	thresholds []threshold.Threshold
	transition time.Duration

	// metSince is when each threshold, by its index, was first met; those that are not met
	// are missing. unresolved are the thresholds that podd acted on, until MinReclaim is
	// available, too.
	metSince   map[int]time.Time
	unresolved map[int]bool
	// lastObserved is when each condition was last observed.
	lastObserved map[v1.NodeConditionType]time.Time
}

func newState(thresholds []threshold.Threshold, transition time.Duration) *state {
	return &state{
		thresholds: thresholds, transition: transition,
		metSince: map[int]time.Time{}, unresolved: map[int]bool{}, lastObserved: map[v1.NodeConditionType]time.Time{},
	}
}

// conditionTypes are in the order of the Node's status.
var conditionTypes = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}

// decision is what follows from observations.
type decision struct {
	// met are the thresholds that are met; actOn are those among them that call for
	// something to be done, most urgent first.
	met, actOn []*threshold.Threshold
	// conditions hold, also those that were observed within the transition period.
	conditions []v1.NodeConditionType
}

// decide decides about new observations. A threshold without an observation is not met. The
// order of the steps is that of upstream's synchronize.
func (s *state) decide(o Observations, now time.Time) (d decision) {
	since, unresolved := map[int]time.Time{}, map[int]bool{}
	for i := range s.thresholds {
		t := &s.thresholds[i]
		seen, known := o[t.Signal]
		if !known || !t.Met(seen.Available, seen.Capacity, s.unresolved[i]) {
			continue
		}
		first, before := s.metSince[i]
		if !before {
			first = now
		}
		since[i] = first
		s.lastObserved[t.Signal.Condition()] = now
		d.met = append(d.met, t)
		if now.Sub(first) >= t.GracePeriod {
			unresolved[i] = true
			d.actOn = append(d.actOn, t)
		}
	}
	s.metSince, s.unresolved = since, unresolved
	for _, c := range conditionTypes {
		if at, ok := s.lastObserved[c]; ok && (now.Equal(at) || now.Sub(at) < s.transition) {
			d.conditions = append(d.conditions, c)
		}
	}
	return d
}

// relieved says whether no threshold of a disk is met any more, with MinReclaim counted.
func (s *state) relieved(o Observations) bool {
	return !slices.ContainsFunc(s.thresholds, func(t threshold.Threshold) bool {
		seen, known := o[t.Signal]
		return known && isDisk(t.Signal) && t.Met(seen.Available, seen.Capacity, true)
	})
}

// signals are those that have a threshold.
func (s *state) signals() []threshold.Signal {
	var all []threshold.Signal
	for i := range s.thresholds {
		if !slices.Contains(all, s.thresholds[i].Signal) {
			all = append(all, s.thresholds[i].Signal)
		}
	}
	return all
}
