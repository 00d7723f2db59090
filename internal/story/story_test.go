package story_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podd/internal/story"
)

// TestInSimulatedTime: the engine runs in a bubble, where sleeping costs nothing.
func TestInSimulatedTime(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		takes time.Duration
		err   string
	}{
		"sleeps":            {"# about\nsleep 2h\n\n  sleep 30m # both\n", 150 * time.Minute, ""},
		"waits":             {"wait it later", 10 * time.Second, ""},
		"waits for all":     {"wait it later now", 10 * time.Second, ""},
		"waits in vain":     {"wait it later never", 30 * time.Second, "s:1: wait it later never: not within 30s: never"},
		"waits not so long": {"wait it later within 5s", 5 * time.Second, "s:1: wait it later within 5s: not within 5s: later"},
		"waits for nothing": {"! wait it never within 1m\nwait it now", time.Minute, ""},
		"waits for nobody":  {"sleep 1s\nwait it error within 1m", time.Second, "s:2: wait it error within 1m: no such thing"},
		"may fail":          {"? wait it error", 0, ""},
		"stops":             {"sleep 1s\nstop\nwait it never", time.Second, ""},
		"wants arguments":   {"wait", 0, "s:1: wait: wants POD FACT…"},
		"knows no word":     {"walk", 0, "s:1: walk: unknown command"},
		"reads quotes":      {"wait it now 'now' 'a $b # c'", 30 * time.Second, "a $b # c"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				watch := story.Watch{
					Unmet: func(_ context.Context, terms []string) (string, error) {
						if slices.Contains(terms, "error") {
							return "", errors.New("no such thing")
						}
						return strings.Join(slices.DeleteFunc(slices.Clone(terms), func(term string) bool {
							return term == "it" || term == "now" || term == "later" && time.Since(began) >= 10*time.Second
						}), " "), nil
					},
					AwaitChange: func(ctx context.Context) {
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
						}
					},
				}
				err := story.Play(t.Context(), "s", tc.text, map[string]story.Command{
					"sleep": story.Sleep, "wait": watch.Command(),
					"stop": {Do: func(context.Context, []string) error { return story.ErrStop }},
				})
				if took := time.Since(began); took != tc.takes {
					t.Errorf("took %v, want %v", took, tc.takes)
				}
				if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
			})
		})
	}
}
