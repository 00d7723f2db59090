package pod

import "time"

// Happened puts the time of something that has happened, as the runtime or a file
// has it by the wall clock, on the clock of now: the result is as long ago as t
// seems to be, at least nothing, and has now's monotonic reading. What waits for
// it goes on when the wall clock is set, and waits no longer than if it had
// happened now. Who keeps it must not ask again: the clock may have been set
// meanwhile. A zero time stays zero.
func Happened(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(-max(now.Sub(t), 0))
}
