package backoff

import "time"

// Policy says how long restarts are delayed.
type Policy struct {
	// Initial is the delay of the second restart; the first has none.
	Initial time.Duration
	// Max is the longest delay.
	Max time.Duration
	// Reset is how long after its last restart a container must have ended for
	// the delays to start over. It does not depend on Max
	// (pkg/kubelet/kubelet.go, MaxContainerBackOff and its doc).
	Reset time.Duration
	// Success is the delay of each restart after exit code 0; 0 for the same
	// as after any other.
	Success time.Duration
}

// Default is the kubelet's policy: 10 s, doubling, at most 300 s, reset after 600 s.
func Default() Policy {
	return Policy{Initial: 10 * time.Second, Max: 300 * time.Second, Reset: 600 * time.Second}
}

// Exit is one end of one container.
type Exit struct {
	// At is when it ended, which identifies this end.
	At time.Time
	// StartedAt is when a container that was stopped to be restarted had started: if it
	// ran for as long as it would have to wait, it does not wait. Zero for one that
	// ended by itself.
	StartedAt time.Time
	// Success says that the exit code was 0.
	Success bool
}

// Entry is what has to be remembered of one container; its zero value is a
// container that was never restarted.
type Entry struct {
	// Delay is the wait of the next restart; 0 for none.
	Delay time.Duration
	// Restarted is when the last restart was decided.
	Restarted time.Time
	// Ended is the end that this restart followed. Deciding again about the same end
	// (the start failed for another reason) neither waits nor counts.
	Ended time.Time
}

// NextStart says when a container may start again, and how long that wait is from
// the end on; a time not after now, or zero, means at once.
func (p Policy) NextStart(e Entry, end Exit) (until time.Time, wait time.Duration) {
	switch {
	case e.answers(end):
		return time.Time{}, 0
	case end.Success && p.Success > 0:
		wait = p.Success
	case e.Delay == 0 || p.expired(e, end):
		return time.Time{}, 0
	default:
		wait = min(e.Delay, p.Max)
	}
	if !end.StartedAt.IsZero() && end.At.Sub(end.StartedAt) >= wait {
		return time.Time{}, 0
	}
	return end.At.Add(wait), wait
}

// Restart returns the memory after a restart, decided at now, that follows end.
func (p Policy) Restart(e Entry, end Exit, now time.Time) Entry {
	next := Entry{Restarted: now, Ended: end.At}
	switch {
	case e.answers(end):
		return e
	case end.Success && p.Success > 0 && p.expired(e, end):
	case end.Success && p.Success > 0:
		next.Delay = e.Delay
	case e.Delay == 0 || p.expired(e, end):
		next.Delay = min(p.Initial, p.Max)
	default:
		next.Delay = min(e.Delay*2, p.Max)
	}
	return next
}

func (e Entry) answers(end Exit) bool { return !e.Restarted.IsZero() && e.Ended.Equal(end.At) }

func (p Policy) expired(e Entry, end Exit) bool { return end.At.Sub(e.Restarted) > p.Reset }
