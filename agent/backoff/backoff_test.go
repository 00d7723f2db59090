package backoff_test

import (
	"testing"
	"time"

	"podd/agent/backoff"
)

// A container that lives for life and is restarted as soon as the policy lets
// it: the waits between its ends and its starts.
func waits(p backoff.Policy, life time.Duration, n int) []time.Duration {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var e backoff.Entry
	var got []time.Duration
	for range n {
		finished := now.Add(life)
		now = finished
		if until := p.Until(e, finished); until.After(now) {
			now = until
		}
		got = append(got, now.Sub(finished))
		e = p.Restart(e, finished, now)
	}
	return got
}

func TestWaitsDoubleUpToTheMaximum(t *testing.T) {
	s := time.Second
	for _, tc := range []struct {
		name   string
		policy backoff.Policy
		life   time.Duration
		want   []time.Duration
	}{
		{"crashes at once", backoff.Default(), time.Millisecond, []time.Duration{0, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}},
		{"lives five minutes", backoff.Default(), 300 * s, []time.Duration{0, 10 * s, 20 * s, 40 * s}},
		{"lives exactly the reset", backoff.Default(), 600 * s, []time.Duration{0, 10 * s, 20 * s}},
		{"lives longer than the reset", backoff.Default(), 601 * s, []time.Duration{0, 0, 0}},
		{"ceiling below the start", backoff.Policy{Initial: 10 * s, Max: 2 * s, Reset: 600 * s}, time.Millisecond, []time.Duration{0, 2 * s, 2 * s}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := waits(tc.policy, tc.life, len(tc.want))
			for i, want := range tc.want {
				if got[i] != want {
					t.Fatalf("waits before each restart: got %v, want %v", got, tc.want)
				}
			}
		})
	}
}

func TestLongHealthForgivesEarlierCrashes(t *testing.T) {
	p := backoff.Default()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := p.Restart(backoff.Entry{Delay: 160 * time.Second, Restarted: now}, now.Add(11*time.Minute), now.Add(11*time.Minute))
	if e.Delay != 10*time.Second {
		t.Errorf("after eleven minutes of health the next wait is %v, want 10s", e.Delay)
	}
}
