package backoff_test

import (
	"slices"
	"testing"
	"time"

	"podd/agent/backoff"
)

const s = time.Second

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// life is how a container lives and ends.
type life struct {
	lasts   time.Duration
	code    int
	stopped bool
}

// waits are the times between the ends of a container and its starts, when it
// is restarted as soon as the policy lets it.
func waits(p backoff.Policy, lives ...life) []time.Duration {
	now := noon
	var e backoff.Entry
	var got []time.Duration
	for _, l := range lives {
		now = now.Add(l.lasts)
		end := backoff.Exit{At: now, Success: l.code == 0}
		if l.stopped {
			end.StartedAt = now.Add(-l.lasts)
		}
		if until, _ := p.NextStart(e, end); until.After(now) {
			now = until
		}
		got = append(got, now.Sub(end.At))
		e = p.Restart(e, end, now)
		if again := p.Restart(e, end, now.Add(s)); again != e {
			panic("an end was counted twice")
		}
	}
	return got
}

func times(n int, l life) []life { return slices.Repeat([]life{l}, n) }

func TestWaitsDoubleUpToTheMaximum(t *testing.T) {
	crash := life{lasts: time.Millisecond, code: 1}
	for _, tc := range []struct {
		name   string
		policy backoff.Policy
		life   life
		want   []time.Duration
	}{
		{"crashes at once", backoff.Default(), crash, []time.Duration{0, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}},
		{"exits 0 at once", backoff.Default(), life{lasts: time.Millisecond}, []time.Duration{0, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}},
		{"lives five minutes", backoff.Default(), life{lasts: 300 * s, code: 1}, []time.Duration{0, 10 * s, 20 * s, 40 * s}},
		{"lives exactly the reset", backoff.Default(), life{lasts: 600 * s, code: 1}, []time.Duration{0, 10 * s, 20 * s}},
		{"lives longer than the reset", backoff.Default(), life{lasts: 601 * s, code: 1}, []time.Duration{0, 0, 0}},
		{"ceiling below the start", backoff.Policy{Initial: 10 * s, Max: 2 * s, Reset: 600 * s}, crash, []time.Duration{0, 2 * s, 2 * s}},
		{"a policy of its own", backoff.Policy{Initial: s, Max: 3 * s, Reset: 600 * s}, crash, []time.Duration{0, s, 2 * s, 3 * s, 3 * s}},
		{"is stopped after longer than the wait, and then not", backoff.Default(), life{lasts: 22 * s, code: 1, stopped: true},
			[]time.Duration{0, 0, 0, 40 * s, 80 * s}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := waits(tc.policy, times(len(tc.want), tc.life)...); !slices.Equal(got, tc.want) {
				t.Fatalf("waits before each restart: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestLongHealthForgivesEarlierCrashes(t *testing.T) {
	crash := life{lasts: s, code: 1}
	got := waits(backoff.Default(), crash, crash, crash, life{lasts: 11 * time.Minute, code: 1}, crash)
	if want := []time.Duration{0, 10 * s, 20 * s, 0, 10 * s}; !slices.Equal(got, want) {
		t.Errorf("crashes, then eleven minutes of health: got %v, want %v", got, want)
	}
}

// TestExitCodeZeroCanBeToldApart: it waits its own time, and leaves the count of
// crashes alone.
func TestExitCodeZeroCanBeToldApart(t *testing.T) {
	p := backoff.Default()
	p.Success = 2 * s
	crash, done := life{lasts: s, code: 1}, life{lasts: s}
	for _, tc := range []struct {
		name  string
		lives []life
		want  []time.Duration
	}{
		{"successes alone", times(4, done), []time.Duration{2 * s, 2 * s, 2 * s, 2 * s}},
		{"between crashes", []life{crash, crash, done, done, crash}, []time.Duration{0, 10 * s, 2 * s, 2 * s, 20 * s}},
		{"after long health", []life{crash, crash, {lasts: 11 * time.Minute}, crash}, []time.Duration{0, 10 * s, 2 * s, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := waits(p, tc.lives...); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestUntilTellsTheWholeWait(t *testing.T) {
	e := backoff.Entry{Delay: 40 * s, Restarted: noon.Add(-30 * s), Ended: noon.Add(-40 * s)}
	until, wait := backoff.Default().NextStart(e, backoff.Exit{At: noon})
	if !until.Equal(noon.Add(40*s)) || wait != 40*s {
		t.Errorf("got %v after noon, %v; want 40s, 40s", until.Sub(noon), wait)
	}
	if until, wait := backoff.Default().NextStart(e, backoff.Exit{At: e.Ended}); !until.IsZero() || wait != 0 {
		t.Errorf("an end that was answered already: got %v, %v; want no wait", until, wait)
	}
}
