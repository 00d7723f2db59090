package pod

import (
	"testing"
	"time"
)

func TestWhatHappenedIsPutOnTheClockOfNow(t *testing.T) {
	now := time.Now()
	wall := now.Round(0) // as the runtime has it
	for name, tc := range map[string]struct{ at, want time.Time }{
		"a second ago":  {wall.Add(-time.Second), now.Add(-time.Second)},
		"now":           {wall, now},
		"in an hour":    {wall.Add(time.Hour), now},
		"by our clock":  {now.Add(-time.Minute), now.Add(-time.Minute)},
		"long ago":      {time.Unix(0, 0), now.Add(-now.Sub(time.Unix(0, 0)))},
		"nobody knows":  {time.Time{}, time.Time{}},
		"in 1000 years": {wall.AddDate(1000, 0, 0), now},
	} {
		got := WithMonotonic(tc.at, now)
		if got != tc.want { // with its monotonic reading
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
