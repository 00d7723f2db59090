package wake

import (
	"testing"
	"time"
)

func TestAMomentIsReachedByEitherClock(t *testing.T) {
	now := time.Now()
	suspended := Moment{now.Add(time.Hour), now.Add(-time.Second).Round(0)} // the monotonic clock stood still
	setBack := Moment{now.Add(-time.Second), now.Add(time.Hour).Round(0)}
	for name, tc := range map[string]struct {
		m    Moment
		want bool
	}{
		"the zero moment": {Moment{}, true}, "now": {MomentAt(now), true}, "later": {MomentAt(now.Add(1)), false},
		"after a suspension": {suspended, true}, "after the wall clock was set back": {setBack, true},
	} {
		if got := tc.m.Reached(now); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
