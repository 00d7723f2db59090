package pod

import "time"

// WithMonotonic converts the time of a past event, which the runtime or a file has by the wall
// clock, to the clock of now. The result is as long before now as t seems to be, never
// after now, and has now's monotonic reading. A timer based on it is not affected when the
// wall clock is set, and is never longer than if the event had happened now. Convert once
// and keep the result: the clock may have been set meanwhile. A zero time stays zero.
func WithMonotonic(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(-max(now.Sub(t), 0))
}
