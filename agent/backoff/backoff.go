package backoff

import "time"

// Policy is a curve of delays.
type Policy struct {
	// Initial is the wait of the second restart.
	Initial time.Duration
	// Max is the longest wait.
	Max time.Duration
	// Reset is how long after its last restart a container must have ended for
	// the curve to start over. It does not depend on Max
	// (pkg/kubelet/kubelet.go, MaxContainerBackOff and its doc).
	Reset time.Duration
}

// Default is the kubelet's curve: 10 s, doubling, at most 300 s, over after 600 s.
func Default() Policy {
	return Policy{Initial: 10 * time.Second, Max: 300 * time.Second, Reset: 600 * time.Second}
}

// Entry is what has to be remembered of one container; its zero value is a
// container that was never restarted.
type Entry struct {
	// Delay is the wait of the next restart; 0 for none.
	Delay time.Duration
	// Restarted is when the last restart was decided.
	Restarted time.Time
	// Ended is the end that restart answered. Deciding again about the same
	// end (the start met another obstacle) neither waits nor counts.
	Ended time.Time
}

// Until says when a container that ended at finished may start again; a time
// not after now, or zero, means at once.
func (p Policy) Until(e Entry, finished time.Time) time.Time {
	if e.Delay == 0 || e.Ended.Equal(finished) || p.expired(e, finished) {
		return time.Time{}
	}
	return finished.Add(e.Delay)
}

// Restart returns the memory after a restart, decided at now, of a container
// that ended at finished.
func (p Policy) Restart(e Entry, finished, now time.Time) Entry {
	delay := p.Initial
	if e.Delay > 0 && e.Ended.Equal(finished) {
		return e
	}
	if e.Delay > 0 && !p.expired(e, finished) {
		delay = e.Delay * 2
	}
	return Entry{Delay: min(delay, p.Max), Restarted: now, Ended: finished}
}

func (p Policy) expired(e Entry, finished time.Time) bool {
	return finished.Sub(e.Restarted) > p.Reset
}
