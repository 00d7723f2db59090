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

func TestWhatAFailedCallLeftIsCollectedWhenItIsOld(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s) * time.Second) }
	for name, tc := range map[string]struct {
		pace collectPace
		now  time.Time
		busy bool
		want time.Duration
	}{
		"nothing failed":                    {collectPace{until: at(10)}, at(11), false, 0},
		"right after the runtime was ready": {collectPace{until: at(10)}, at(1), false, 10 * time.Second},
		"calls of another are at work":      {collectPace{until: at(10)}, at(60), true, 10 * time.Second},
		"a sandbox has just failed":         {collectPace{failed: at(60)}, at(60), false, 10 * time.Second},
		"and its records were looked for":   {collectPace{failed: at(60)}, at(70), false, 300 * time.Second},
		"another one since":                 {collectPace{failed: at(200)}, at(370), false, 140 * time.Second},
		"its remains have been looked for":  {collectPace{failed: at(60)}, at(370), false, 0},
	} {
		if got := tc.pace.next(tc.now, tc.busy); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
