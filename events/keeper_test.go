package events

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// keep plays a podd that records something, and ends.
func keep(t *testing.T, path string, record func(r *Recorder)) {
	t.Helper()
	r := New(Config{Node: "n1"})
	k := NewKeeper(r, path, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	record(r)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	k.Close()
}

// kept returns "pod reason message count" of each event that the next podd has.
func kept(t *testing.T, path string) (all []string) {
	t.Helper()
	r := New(Config{Node: "n1"})
	NewKeeper(r, path, slog.New(slog.DiscardHandler))
	for _, e := range r.List(Filter{}) {
		all = append(all, fmt.Sprintf("%s %s %q %d", e.InvolvedObject.Name, e.Reason, e.Message, e.Count))
	}
	return all
}

func TestEventsAreThereAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		keep(t, path, func(r *Recorder) {
			r.Event(aPod("a"), v1.EventTypeNormal, "Pulled", "there")
			r.ContainerEvent(aPod("b"), "main", v1.EventTypeWarning, "BackOff", "Back-off <5s> & \u00fcber\n")
			r.Event(aPod("a"), v1.EventTypeNormal, "Pulled", "there")
		})
		want := []string{`b BackOff "Back-off <5s> & über\n" 1`, `a Pulled "there" 2`}
		if got := kept(t, path); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		keep(t, path, func(r *Recorder) { // a repeat goes on where it was
			r.Event(aPod("c"), v1.EventTypeNormal, "Pulled", "there")
			r.ContainerEvent(aPod("b"), "main", v1.EventTypeWarning, "BackOff", "Back-off <5s> & \u00fcber\n")
		})
		want = []string{`a Pulled "there" 2`, `c Pulled "there" 1`, `b BackOff "Back-off <5s> & über\n" 2`}
		if got := kept(t, path); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
			t.Errorf("got mode %v, %v; want it for root only", st.Mode(), err)
		}
	})
}

// What happens while podd's parts end is there, too.
func TestTheLastEventsOfAPoddAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		r := New(Config{})
		k := NewKeeper(r, path, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := k.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		r.Event(aPod("a"), v1.EventTypeNormal, "Killing", "the last word")
		k.Close()
		if got := kept(t, path); !slices.Equal(got, []string{`a Killing "the last word" 1`}) {
			t.Errorf("got %q", got)
		}
	})
}

// A podd that is killed has written what happened a tenth of a second before; what is only
// repeated costs one write a minute.
func TestAnEventIsOnDiskAtOnceAndARepeatWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		keep(t, path, func(r *Recorder) {
			lines := func() int {
				synctest.Wait()
				content, _ := os.ReadFile(path)
				return strings.Count(string(content), "\n")
			}
			for i := range 600 {
				r.Event(aPod("a"), v1.EventTypeWarning, "Unhealthy", "refused")
				time.Sleep(100 * time.Millisecond)
				if i == 0 && lines() != 1 {
					t.Fatal("the first event is not on disk")
				}
			}
			time.Sleep(time.Second)
			if n := lines(); n != 2 {
				t.Errorf("600 repeats in a minute are %d lines, want 2", n)
			}
			r.Event(aPod("a"), v1.EventTypeWarning, "Unhealthy", "refused")
			time.Sleep(2 * time.Minute)
			if n := lines(); n != 3 {
				t.Errorf("%d lines, want the last repeat, too", n)
			}
			r.Event(aPod("a"), v1.EventTypeWarning, "Unhealthy", "refused")
			r.Event(aPod("a"), v1.EventTypeWarning, "Unhealthy", "refused")
			time.Sleep(time.Second)
		})
		if got := kept(t, path); !slices.Equal(got, []string{`a Unhealthy "refused" 603`}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestTheFileOfEventsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		largest := int64(0)
		keep(t, path, func(r *Recorder) {
			for i := range 2000 { // a message of control characters is six times as long in JSON
				r.Event(aPod(fmt.Sprint("pod", i)), v1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%d%s", i, strings.Repeat("\x01", MaxMessage)))
				if i%7 == 0 {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if st, err := os.Stat(path); err == nil {
					largest = max(largest, st.Size())
				}
			}
		})
		if largest > maxFile || largest < maxRewritten {
			t.Errorf("the file grew to %d bytes, the limit is %d", largest, maxFile)
		}
		all := kept(t, path)
		if len(all) < 20 || !strings.HasPrefix(all[len(all)-1], "pod1999 ") {
			t.Errorf("%d events are kept, want the newest", len(all))
		}
	})
}

func TestADamagedFileOfEventsCostsOnlyWhatIsDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "events.jsonl")
		keep(t, path, func(r *Recorder) {
			r.Event(aPod("a"), v1.EventTypeNormal, "Pulled", "there")
			r.Event(aPod("b"), v1.EventTypeNormal, "Pulled", "there")
		})
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		torn := string(content[:len(content)-20]) // a power failure
		for name, damaged := range map[string]string{"torn": torn, "nonsense": torn[:strings.Index(torn, "\n")+1] + "null\n{}\n" + `{"event":{"count":1}}` + "\n\x00\x00"} {
			if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			keep(t, path, func(r *Recorder) { r.Event(aPod("c"), v1.EventTypeNormal, "Pulled", "there") })
			if got := kept(t, path); !slices.Equal(got, []string{`a Pulled "there" 1`, `c Pulled "there" 1`}) {
				t.Errorf("%s: got %q", name, got)
			}
		}
	})
}

func TestAFileOfEventsThatOthersCouldWriteIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, victim := filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "victim")
		keep(t, victim, func(r *Recorder) { r.Event(aPod("a"), v1.EventTypeNormal, "Pulled", "there") })
		before, err := os.ReadFile(victim)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, path); err != nil {
			t.Fatal(err)
		}
		keep(t, path, func(r *Recorder) { r.Event(aPod("b"), v1.EventTypeNormal, "Pulled", "there") })
		after, err := os.ReadFile(victim)
		if got := kept(t, path); !slices.Equal(got, []string{`b Pulled "there" 1`}) || err != nil || string(after) != string(before) {
			t.Errorf("got %q, %v; the file that the link leads to has %q", got, err, after)
		}
	})
}

// A disk that takes nothing is told once, and all events are written once it takes some.
func TestEventsAreWrittenOnceTheDiskTakesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "root")
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // no directory
			t.Fatal(err)
		}
		var log strings.Builder
		r := New(Config{})
		k := NewKeeper(r, filepath.Join(dir, "events.jsonl"), slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.Run(ctx) }()
		for i := range 10 {
			r.Event(aPod("a"), v1.EventTypeNormal, fmt.Sprint("Reason", i), "there")
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), "cannot write events to disk"); n != 1 {
			t.Errorf("told %d times, want once:\n%s", n, &log)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := kept(t, k.file.Path); len(got) != 10 {
			t.Errorf("got %q, want all ten", got)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}
