package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// tick is how often the poller looks.
const tick = 50 * time.Millisecond

// hasty says, by side, that a state may have escaped the other side's poller if it
// was the first that an agent showed when it was started again. It is less than
// what the rule for sequences lets pass: podd's may not last from one look to the
// next, and the kubelet's not longer than a glimpse.
var hasty = [2]func(Span) bool{
	func(s Span) bool { return s.For < glimpse },
	func(s Span) bool { return s.Looks <= 1 },
}

// started takes out of a sequence what the agent showed at first when it was started
// again, if that was brief, a state that pods pass through, and followed by what the
// other side shows since its own start.
func started(spans, other []Span, brief func(Span) bool) []Span {
	var all []Span
	for i, s := range spans {
		first := i > 0 && i+1 < len(spans) && s.Starts > spans[i-1].Starts && s.Starts == spans[i+1].Starts
		if !first || !brief(s) || !passing.MatchString(s.State) || spans[i+1].key() != shownAtStart(other, s.Starts) {
			all = append(all, s)
		}
	}
	return all
}

// shownAtStart is the first state after a start of the agent; empty if none was
// shown.
func shownAtStart(spans []Span, start int) string {
	for _, s := range spans {
		if s.Starts == start {
			return s.key()
		}
	}
	return ""
}

// starts counts, by state of a start (Pending, ContainerCreating …), in how many places of
// all scenarios the kubelet shows it, and podd too. In one scenario either may have been too
// quick for the poller.
type starts map[string]*struct{ kubelet, podd int }

// add takes in a scenario's records.
func (s starts) add(upstream, ours *Record) {
	for pod, generations := range upstream.Pods {
		for i, theirs := range generations {
			series := at(ours.Pods[pod], i)
			if series == nil || len(series.Axes) == 0 {
				continue
			}
			for axis, spans := range theirs.Axes {
				s.count(spans, series.Axes[axis])
			}
		}
	}
}

func (s starts) count(theirs, ours []Span) {
	for _, span := range theirs {
		if !starting.MatchString(span.State) {
			continue
		}
		state := strings.TrimPrefix(span.State, "#0 ")
		if s[state] == nil {
			s[state] = &struct{ kubelet, podd int }{}
		}
		s[state].kubelet++
		if slices.ContainsFunc(ours, func(o Span) bool { return o.State == span.State }) {
			s[state].podd++
		}
	}
}

// rarely are the states, in words, that podd does not show in three of four places where the
// kubelet does.
func (s starts) rarely() (all []string) {
	const few = 10 // in which chance decides
	for _, state := range slices.Sorted(maps.Keys(s)) {
		if n := s[state]; n.kubelet >= few && 4*n.podd < 3*n.kubelet {
			all = append(all, fmt.Sprintf("%s: the kubelet shows it %d times, podd %d", state, n.kubelet, n.podd))
		}
	}
	return all
}
