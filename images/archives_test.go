package images

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// shelf is a fake image directory with a slow import.
type shelf struct {
	holds map[string]bool
	takes time.Duration
	then  func()

	importing atomic.Bool

	mu      sync.Mutex
	missing []string // guarded by mu
}

func (s *shelf) ReportMissing(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = append(s.missing, ref)
}

func (s *shelf) WaitBriefly(ctx context.Context) error {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.then != nil {
		s.then()
	}
	return nil
}

func (s *shelf) HasImage(ref string) bool { return s.holds[ref] }

func (s *shelf) Importing() bool { return s.importing.Load() }

func TestAnImageOfAnArchiveIsPulledFromNoRegistry(t *testing.T) {
	for name, tc := range map[string]struct {
		holds  bool
		policy v1.PullPolicy
		pulled []string
	}{
		"in an archive, IfNotPresent": {holds: true, policy: v1.PullIfNotPresent},
		"in an archive, Always":       {holds: true, policy: v1.PullAlways},
		"in none":                     {policy: v1.PullIfNotPresent, pulled: []string{"reg.test/a:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{holds: map[string]bool{"reg.test/a:1": tc.holds}, takes: 3 * time.Second}
			inBubble(t, PullConfig{Archives: s}, func(t *testing.T, b *bench) {
				s.then = func() {
					if tc.holds {
						b.rt.mu.Lock()
						b.rt.local["reg.test/a:1"] = &pod.Image{ID: "sha256:archived"}
						b.rt.mu.Unlock()
					}
				}
				if st := b.ask(t, "p", "reg.test/a:1", tc.policy); st.Ready {
					t.Fatalf("before the import: got %+v", st)
				}
				time.Sleep(2 * time.Second)
				if got := b.rt.pulled(); len(got) > 0 {
					t.Errorf("while archives are imported: got pulls of %q", got)
				}
				time.Sleep(2 * time.Second)
				if st := b.ask(t, "p", "reg.test/a:1", tc.policy); !st.Ready || tc.holds && st.Ref != "sha256:archived" {
					t.Errorf("after the import: got %+v", st)
				}
				if got := b.rt.pulled(); !slices.Equal(got, tc.pulled) {
					t.Errorf("got pulls of %q, want %q", got, tc.pulled)
				}
				if missing := tc.policy == v1.PullIfNotPresent; missing != slices.Contains(s.missing, "reg.test/a:1") {
					t.Errorf("images reported as missing: %q", s.missing)
				}
			})
		})
	}
}

// TestAnArchiveWhoseImageIsLostDoesNotKeepAPodFromIt: an image that its archive no
// longer provides is pulled as any other.
func TestAnArchiveWhoseImageIsLostDoesNotKeepAPodFromIt(t *testing.T) {
	s := &shelf{holds: map[string]bool{"reg.test/a:1": true}}
	inBubble(t, PullConfig{Archives: s}, func(t *testing.T, b *bench) {
		b.ask(t, "p", "reg.test/a:1", v1.PullIfNotPresent)
		time.Sleep(time.Second)
		if st := b.ask(t, "p", "reg.test/a:1", v1.PullIfNotPresent); !st.Ready {
			t.Errorf("got %+v", st)
		}
		if got := b.rt.pulled(); !slices.Equal(got, []string{"reg.test/a:1"}) {
			t.Errorf("got pulls of %q, want one", got)
		}
	})
}

// TestAnImageThatWasOnlyWaitedForIsNoCancelledPull: on a first start each pod waits for the
// image directory, and nothing was requested from a registry.
func TestAnImageThatWasOnlyWaitedForIsNoCancelledPull(t *testing.T) {
	const image = "localhost/app:1"
	var log bytes.Buffer
	inBubble(t, PullConfig{Archives: &shelf{takes: time.Second}, Log: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, b *bench) {
		b.ask(t, "a", image, v1.PullIfNotPresent)
		synctest.Wait()
		b.rt.mu.Lock()
		b.rt.local[image] = &pod.Image{ID: "sha256:archived"}
		b.rt.mu.Unlock()
		b.Imported([]string{image})
		synctest.Wait()
		if st := b.ask(t, "a", image, v1.PullIfNotPresent); !st.Ready {
			t.Errorf("got %+v, want it ready", st)
		}
		if got := b.rt.pulled(); len(got) > 0 {
			t.Errorf("got pulls of %q", got)
		}
	})
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
}

// TestAnImageThatIsBeingImportedIsNotToldToBeAbsent: nor for ever, if the archives turn out
// not to have it, or one is never complete.
func TestAnImageThatIsBeingImportedIsNotToldToBeAbsent(t *testing.T) {
	const image = "localhost/app:1"
	for name, tc := range map[string]struct {
		meanwhile func(s *shelf, b *bench)
		want      string
	}{
		"it is imported": {func(s *shelf, b *bench) {
			b.rt.set(image, 0, nil)
			b.rt.mu.Lock()
			b.rt.local[image] = &pod.Image{ID: "sha256:archived"}
			b.rt.mu.Unlock()
			b.Imported([]string{image})
			s.importing.Store(false)
		}, "Normal Pulled"},
		"no archive has it": {func(s *shelf, _ *bench) { s.importing.Store(false) }, "Warning ErrImageNeverPull"},
		"an import hangs":   {func(*shelf, *bench) { time.Sleep(importTimeout) }, "Warning ErrImageNeverPull"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{}
			s.importing.Store(true)
			inBubble(t, PullConfig{Archives: s}, func(t *testing.T, b *bench) {
				for range 3 {
					if st := b.ask(t, "p", image, v1.PullNever); st.Ready || st.Reason != pod.ReasonContainerCreating || time.Until(st.RetryAt) != importPollInterval {
						t.Errorf("while archives are imported: got %+v", st)
					}
					time.Sleep(importPollInterval)
				}
				if len(b.notes.events) > 0 {
					t.Errorf("got events %q", b.notes.events)
				}
				tc.meanwhile(s, b)
				st := b.ask(t, "p", image, v1.PullNever)
				if ready := tc.want == "Normal Pulled"; st.Ready != ready || len(b.notes.events) == 0 || !strings.HasPrefix(b.notes.events[0], tc.want) {
					t.Errorf("after that: got %+v and events %q, want %s", st, b.notes.events, tc.want)
				}
				s.importing.Store(true)
				if again := b.ask(t, "p", image, v1.PullNever); again.Ready != st.Ready || again.Reason != st.Reason {
					t.Errorf("with the next archive: got %+v, want %+v", again, st)
				}
			})
		})
	}
}
