package wake

import "time"

// Moment is a time on both of the machine's clocks. The wall clock may be set, and the
// monotonic clock stands still while the machine is suspended. The zero Moment has passed.
//
// A timer that waits for Monotonic does not notice that the wall clock has passed Wall. To wait
// for a Moment, check Reached from time to time.
type Moment struct{ Monotonic, Wall time.Time }

// MomentAt returns the Moment of a time that has a monotonic reading.
func MomentAt(t time.Time) Moment { return Moment{t, t.Round(0)} }

// Reached reports whether either clock has passed m. now needs a monotonic reading.
func (m Moment) Reached(now time.Time) bool {
	return !m.Monotonic.After(now) || !m.Wall.After(now.Round(0))
}
