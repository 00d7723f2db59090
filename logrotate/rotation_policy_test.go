package logrotate

import (
	"slices"
	"testing"
	"time"
)

func TestWhatIsTidied(t *testing.T) {
	for _, tc := range []struct {
		name             string
		names            []string
		keep             int
		busy             string
		remove, compress []string
	}{
		{"nothing", nil, 4, "", nil, nil},
		{"the newest stays as it is", []string{"l.1"}, 4, "", nil, nil},
		{"older ones are compressed", []string{"l.3", "l.1", "l.2"}, 4, "", nil, []string{"l.1", "l.2"}},
		{"compressed ones stay", []string{"l.1.gz", "l.2.gz", "l.3"}, 4, "", nil, nil},
		{"too many", []string{"l.5", "l.1.gz", "l.2.gz", "l.3.gz", "l.4"}, 4, "", []string{"l.1.gz"}, []string{"l.4"}},
		{"one only", []string{"l.1", "l.2"}, 1, "", []string{"l.1"}, nil},
		{"half-made", []string{"l.1", "l.1.tmp", "l.2"}, 4, "", []string{"l.1.tmp"}, []string{"l.1"}},
		{"half-made and at work", []string{"l.1", "l.1.tmp", "l.2"}, 4, "l.1.tmp", nil, []string{"l.1"}},
		{"compressed and not removed", []string{"l.1", "l.1.gz", "l.2"}, 4, "", []string{"l.1"}, nil},
	} {
		got := planCleanup(tc.names, tc.keep, tc.busy)
		if !slices.Equal(got.Remove, tc.remove) || !slices.Equal(got.Compress, tc.compress) {
			t.Errorf("%s: got remove %v, compress %v; want %v, %v", tc.name, got.Remove, got.Compress, tc.remove, tc.compress)
		}
	}
}

func TestAFloodIsSeenBeforeItsTime(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const limit, interval = 100, 10 * time.Second
	for _, tc := range []struct {
		before, now sizeSample
		want        time.Duration // after now; 0 for the usual time
	}{
		{sizeSample{0, start}, sizeSample{0, start.Add(interval)}, 0},
		{sizeSample{0, start}, sizeSample{10, start.Add(interval)}, 0},
		{sizeSample{0, start}, sizeSample{50, start.Add(interval)}, 10 * time.Second},
		{sizeSample{0, start}, sizeSample{80, start.Add(interval)}, 2500 * time.Millisecond},
		{sizeSample{0, start}, sizeSample{99, start.Add(time.Second)}, time.Second},
		{sizeSample{80, start}, sizeSample{5, start.Add(interval)}, 0}, // another file
		{sizeSample{0, start}, sizeSample{99, start}, 0},
	} {
		at := nextCheck(tc.before, tc.now, limit, interval, time.Second)
		if tc.want == 0 && !at.IsZero() || tc.want != 0 && !at.Equal(tc.now.at.Add(tc.want)) {
			t.Errorf("%v to %v: got %v, want in %v", tc.before, tc.now, at, tc.want)
		}
	}
	if got := rotatedName("/l/0.log", start); got != "/l/0.log.20260102-030405" {
		t.Errorf("got %s", got)
	}
}
