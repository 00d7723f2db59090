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
		now := started.Round(0).Add(10*minute + tc.set)
		before := moment{started.Round(0), 10 * minute}.earliestBefore(now, maxCallDuration)
		if got := started.Round(0).Add(tc.made).Before(before); got != tc.leftover {
			t.Errorf("%s: left behind %v, want %v", tc.name, got, tc.leftover)
		}
	}
	now := time.Now()
	if got, want := momentOf(started, now).earliestBefore(now.Round(0), minute), now.Round(0).Add(-minute); got.Sub(want).Abs() > 100*time.Millisecond {
		t.Errorf("with a clock that nobody set: got %v, want about %v", got, want)
	}
}

// A container that is being created is not taken for one of an earlier podd, or of an earlier
// run of the runtime, though by the clock, which was set back since they started, it is older.
func TestWhatIsBeingCreatedIsSparedThoughTheClockWasSetBack(t *testing.T) {
	const minute = time.Minute
	start := time.Now().Round(0)
	for _, tc := range []struct {
		name             string
		set              time.Duration // the clock, after 2 minutes
		made             time.Duration // by the clock of that moment, from podd's start
		left, beforeThis bool          // behind by another podd; by a runtime that ran before
	}{
		{"not set, just made", 0, 119 * time.Second, false, false},
		{"not set, made by an earlier podd", 0, -minute / 4, true, false},
		{"not set, made in an earlier runtime", 0, -minute, true, true},
		{"set back, made since", -time.Hour, -58 * minute, false, false},
		{"set back, made between the start and that", -time.Hour, minute, false, false},
		{"set back, made an hour before", -time.Hour, -62 * minute, true, true},
		{"set forward, made since", time.Hour, 62 * minute, false, false},
		{"set forward, made by an earlier podd", time.Hour, -minute / 4, true, false},
		{"set forward, made in an earlier runtime", time.Hour, -minute, true, true},
	} {
		criteria, _ := criteriaAt(start.Add(2*minute+tc.set), moment{start, 2 * minute}, moment{start.Add(-minute / 2), 5 * minute / 2}, false)
		made := start.Add(tc.made)
		if got := made.Before(criteria.Before); got != tc.left {
			t.Errorf("%s: of an earlier podd %v, want %v", tc.name, got, tc.left)
		}
		if got := made.Before(criteria.RuntimeBegan); got != tc.beforeThis {
			t.Errorf("%s: of an earlier runtime %v, want %v", tc.name, got, tc.beforeThis)
		}
	}
	if criteria, slack := criteriaAt(start, moment{start.Add(-time.Hour), time.Hour}, moment{}, true); criteria.Before != slack || !criteria.RuntimeBegan.Before(start.Add(-time.Hour)) {
		t.Errorf("a runtime that is shared, and began at an unknown time: got %+v", criteria)
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
