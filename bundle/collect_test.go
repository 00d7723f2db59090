package bundle

import (
	"testing"
	"time"
)

// TestWhatIsNewIsSparedThoughTheClockWasSet: a file that was made a moment ago is
// not taken for one that was left behind.
func TestWhatIsNewIsSparedThoughTheClockWasSet(t *testing.T) {
	started := time.Now()
	const minute = time.Minute
	for _, tc := range []struct {
		name     string
		set      time.Duration // the clock, 10 minutes after the start
		made     time.Duration // by the clock of that moment, from the start
		leftover bool
	}{
		{"not set, made long ago", 0, 4 * minute, true},
		{"not set, just made", 0, 9 * minute, false},
		{"set forward, made just before that", time.Hour, 9 * minute, false},
		{"set forward, made long before that", time.Hour, 4 * minute, true},
		{"set forward, made since", time.Hour, 70 * minute, false},
		{"set back, made just before that", -time.Hour, 9 * minute, false},
		{"set back, made since", -time.Hour, -50 * minute, false},
	} {
		// By the wall clock alone now is 10 minutes and what it was set by from the
		// start; by the steady one it is 10 minutes.
		now, unset := started.Round(0).Add(10*minute+tc.set), started.Round(0).Add(10*minute)
		before := earlierBy(now, unset, collectSlack)
		if got := started.Round(0).Add(tc.made).Before(before); got != tc.leftover {
			t.Errorf("%s: left behind %v, want %v", tc.name, got, tc.leftover)
		}
	}
	now := time.Now()
	if got, want := agoByAnyClock(now, started, minute), now.Round(0).Add(-minute); got.Sub(want).Abs() > 100*time.Millisecond {
		t.Errorf("with a clock that nobody set: got %v, want about %v", got, want)
	}
}

func TestCollectionsGetRarerAndEndWhenEverythingIsOldEnough(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s) * time.Second) }
	for name, tc := range map[string]struct {
		pace         collectPace
		now          time.Time
		busy, failed bool
		want         time.Duration
	}{
		"nothing happened":                 {collectPace{}, at(11), false, false, 0},
		"right after":                      {collectPace{since: at(0)}, at(1), false, false, 9 * time.Second},
		"after the first":                  {collectPace{since: at(0)}, at(10), false, false, 10 * time.Second},
		"after the second":                 {collectPace{since: at(0)}, at(21), false, false, 19 * time.Second},
		"after the last but one":           {collectPace{since: at(0)}, at(161), false, false, 149 * time.Second},
		"after the last":                   {collectPace{since: at(0)}, at(310), false, false, 0},
		"not everything could be removed":  {collectPace{since: at(0)}, at(310), false, true, 300 * time.Second},
		"nor was it soon after the start":  {collectPace{since: at(0)}, at(20), false, true, 20 * time.Second},
		"calls of another are at work":     {collectPace{since: at(0)}, at(60), true, false, 10 * time.Second},
		"calls of another, after the last": {collectPace{since: at(0)}, at(600), true, false, 10 * time.Second},
	} {
		if got := tc.pace.next(tc.now, tc.busy, tc.failed); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
