package agent

import (
	"testing"
	"time"
)

// TestAHintIsStaleOnlyIfTheSyncCameAfterIt whatever somebody does to the clock.
func TestAHintIsStaleOnlyIfTheSyncCameAfterIt(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const ms = time.Millisecond
	synced := instant{wall: noon, steady: time.Hour}
	for _, tc := range []struct {
		name string
		// at and now are from the sync on, by the wall clock; later is now by the
		// steady one.
		at, now, later time.Duration
		stale          bool
	}{
		{"before the sync", -20 * ms, 30 * ms, 30 * ms, true},
		{"before the sync, heard much later", -20 * ms, 4 * time.Second, 4 * time.Second, true},
		{"after the sync", 20 * ms, 30 * ms, 30 * ms, false},
		{"long before the sync", -time.Minute, 30 * ms, 30 * ms, false},
		{"after the sync, the clock set back 3 s in between", 20*ms - 3*time.Second, 30*ms - 3*time.Second, 30 * ms, false},
		{"after the sync, the clock set back 5 ms in between", -ms, -ms, 4 * ms, false},
		{"after the sync, the clock set back an hour", -time.Hour, -time.Hour, 30 * ms, false},
		{"after the sync, the clock set forward", time.Hour, time.Hour, 30 * ms, false},
		{"before the sync, the clock set forward since", -20 * ms, time.Hour, 30 * ms, true},
		{"before the sync, the clock set back before it", 3*time.Second - 20*ms, 30 * ms, 30 * ms, false}, // one more sync
		{"before the sync, the clock slowed since", -20 * ms, 1990 * ms, 2 * time.Second, true},
	} {
		now := instant{wall: noon.Add(tc.now), steady: time.Hour + tc.later}
		if got := stale(noon.Add(tc.at), synced, now); got != tc.stale {
			t.Errorf("%s: got stale %v, want %v", tc.name, got, tc.stale)
		}
	}
	if now := instantOf(time.Now()); stale(time.Time{}, now, now) || stale(now.wall, instant{}, now) {
		t.Error("without a time, or a sync, a hint counts")
	}
}
