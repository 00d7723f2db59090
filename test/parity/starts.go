package main

import "time"

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
