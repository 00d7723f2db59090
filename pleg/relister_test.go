package pleg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/pod"
)

// stub answers as the test says, and has no state of a runtime: what one does is in
// runtime_test.go.
type stub struct {
	mu       sync.Mutex
	pods     map[pod.UID]pod.Summary
	listErr  error
	hang     bool
	noStream bool
	lists    int
	alives   int
	opened   int
	look     func(pod.UID, time.Time)
	lost     chan error
}

func (f *stub) Summaries(ctx context.Context) ([]pod.Summary, error) {
	f.mu.Lock()
	f.lists++
	hang, err := f.hang, f.listErr
	var out []pod.Summary
	for _, g := range f.pods {
		g.Containers = maps.Clone(g.Containers)
		out = append(out, g)
	}
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return out, err
}

func (f *stub) Alive(ctx context.Context) error {
	f.mu.Lock()
	f.alives++
	hang, err := f.hang, f.listErr
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *stub) Events(ctx context.Context, look func(pod.UID, time.Time)) error {
	f.mu.Lock()
	f.opened++
	if f.noStream {
		f.mu.Unlock()
		return fmt.Errorf("events: %w", pod.ErrUnimplemented)
	}
	lost := make(chan error)
	f.look, f.lost = look, lost
	f.mu.Unlock()
	select {
	case err := <-lost:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *stub) put(uid pod.UID, state pod.ContainerState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[uid] = pod.Summary{UID: uid, Sandboxes: map[string]bool{"s": true}, Containers: map[string]pod.ContainerState{"c": state}}
}

// counts of lists, signs of life and openings of the stream.
func (f *stub) counts() (lists, alives, opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists, f.alives, f.opened
}

func (f *stub) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

type wakes struct {
	mu  sync.Mutex
	got []pod.UID
}

func (w *wakes) Wake(uid pod.UID, _ time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, uid)
}

func (w *wakes) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var s []string
	for _, u := range w.got {
		s = append(s, string(u))
	}
	w.got = nil
	return strings.Join(s, " ")
}

func inBubble(t *testing.T, cfg Config, prepare func(*stub), test func(t *testing.T, f *stub, w *wakes, r *Relister)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, w := &stub{pods: map[pod.UID]pod.Summary{}}, &wakes{}
		if prepare != nil {
			prepare(f)
		}
		cfg.Waker, cfg.Metrics = w, prometheus.NewRegistry()
		r := New(cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx, f) }()
		synctest.Wait()
		test(t, f, w, r)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v, want canceled", err)
		}
	})
}

func TestEventWakesItsPodWithoutARelist(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, f *stub, w *wakes, _ *Relister) {
		time.Sleep(10 * time.Second)
		lists, _, _ := f.counts()
		f.look("a", time.Now())
		if got := w.take(); got != "a" {
			t.Errorf("wakes: got %q, want a", got)
		}
		time.Sleep(2 * time.Minute)
		if now, _, _ := f.counts(); now != lists {
			t.Errorf("got %d relists in 2 minutes, want none", now-lists)
		}
	})
}

func TestSafetyRelistFindsWhatNoEventReported(t *testing.T) {
	inBubble(t, Config{}, func(f *stub) {
		f.put("a", pod.ContainerRunning)
		f.put("b", pod.ContainerRunning)
	}, func(t *testing.T, f *stub, w *wakes, _ *Relister) {
		time.Sleep(5 * time.Second)
		w.take()
		f.put("a", pod.ContainerExited)
		time.Sleep(6 * time.Minute)
		if got := w.take(); got != "a" {
			t.Errorf("after the net: got wakes %q, want a", got)
		}
		f.set(func() { delete(f.pods, "b") })
		time.Sleep(6 * time.Minute)
		if got := w.take(); got != "b" {
			t.Errorf("after b vanished: got wakes %q, want b", got)
		}
	})
}

func TestLostStreamIsRelistedAtOnceAndReopened(t *testing.T) {
	recovered := 0
	inBubble(t, Config{OnRecovery: func() { recovered++ }}, func(f *stub) { f.put("a", pod.ContainerRunning) }, func(t *testing.T, f *stub, w *wakes, _ *Relister) {
		time.Sleep(time.Minute)
		w.take()
		f.put("a", pod.ContainerExited)
		f.lost <- pod.ErrUnavailable
		synctest.Wait()
		if got := w.take(); got != "a" {
			t.Errorf("at once: got wakes %q, want a", got)
		}
		time.Sleep(100 * time.Millisecond)
		if _, _, opened := f.counts(); opened != 2 {
			t.Errorf("after 100 ms: stream opened %d times, want twice", opened)
		}
		f.put("a", pod.ContainerRunning)
		time.Sleep(3 * time.Second)
		if got := w.take(); got != "a" {
			t.Errorf("a change before the new stream was listened to: got wakes %q, want a", got)
		}
		if recovered == 0 {
			t.Error("nobody was told that the runtime is back")
		}
	})
}

func TestRuntimeWithoutAStreamIsAskedEachSecond(t *testing.T) {
	inBubble(t, Config{}, func(f *stub) { f.noStream = true; f.put("a", pod.ContainerRunning) }, func(t *testing.T, f *stub, w *wakes, _ *Relister) {
		time.Sleep(5 * time.Second)
		w.take()
		f.put("a", pod.ContainerExited)
		time.Sleep(1100 * time.Millisecond)
		if got := w.take(); got != "a" {
			t.Errorf("got wakes %q, want a within a second", got)
		}
		if _, _, opened := f.counts(); opened != 1 {
			t.Errorf("stream tried %d times, want once", opened)
		}
	})
}

func TestRuntimeThatIsAwayIsFoundAgainWithinASecond(t *testing.T) {
	inBubble(t, Config{}, func(f *stub) { f.put("a", pod.ContainerRunning) }, func(t *testing.T, f *stub, w *wakes, r *Relister) {
		time.Sleep(time.Minute)
		w.take()
		f.set(func() { f.listErr = pod.ErrUnavailable })
		f.lost <- pod.ErrUnavailable
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			f.mu.Lock()
			lost := f.lost
			f.mu.Unlock()
			select {
			case lost <- pod.ErrUnavailable:
			default:
			}
		}
		f.put("a", pod.ContainerExited)
		f.set(func() { f.listErr = nil })
		time.Sleep(1200 * time.Millisecond)
		if got := w.take(); got != "a" {
			t.Errorf("got wakes %q, want a", got)
		}
		if err := r.Healthy(); err != nil {
			t.Errorf("healthy: got %v", err)
		}
	})
}

func TestHealth(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, f *stub, _ *wakes, r *Relister) {
		time.Sleep(time.Hour)
		if err := r.Healthy(); err != nil {
			t.Errorf("an hour without an event: got %v, want healthy, for the runtime answers", err)
		}
		if _, alives, _ := f.counts(); alives > 60 {
			t.Errorf("asked %d times in an hour, want once a minute at most", alives)
		}
		f.set(func() { f.hang = true })
		// The last contact may be 90 s old by then: a relist (whose time is
		// jittered) just before the minute's question makes that one needless.
		time.Sleep(85 * time.Second)
		if err := r.Healthy(); err != nil {
			t.Errorf("under 3 minutes without contact: got %v, want healthy still", err)
		}
		time.Sleep(175 * time.Second)
		err := r.Healthy()
		if err == nil || !strings.Contains(err.Error(), "last in contact") || !strings.Contains(err.Error(), "threshold is 3m0s") {
			t.Errorf("over 3 minutes of silence: got %v", err)
		}
		f.look("a", time.Now())
		if err := r.Healthy(); err != nil {
			t.Errorf("after an event: got %v", err)
		}
	})
}

func TestHangingRelistDelaysNoEvent(t *testing.T) {
	inBubble(t, Config{}, func(f *stub) { f.hang = true }, func(t *testing.T, f *stub, w *wakes, _ *Relister) {
		f.look("a", time.Now())
		if got := w.take(); got != "a" {
			t.Errorf("got wakes %q, want a", got)
		}
	})
}

func TestEventWithoutAPodIsRelisted(t *testing.T) {
	inBubble(t, Config{}, func(f *stub) { f.put("a", pod.ContainerRunning) }, func(t *testing.T, f *stub, w *wakes, _ *Relister) {
		time.Sleep(5 * time.Second)
		w.take()
		f.put("a", pod.ContainerExited)
		for range 100 {
			f.look("", time.Now())
		}
		before, _, _ := f.counts()
		time.Sleep(1100 * time.Millisecond)
		if got := w.take(); got != "a" {
			t.Errorf("got wakes %q, want a", got)
		}
		if now, _, _ := f.counts(); now-before > 2 {
			t.Errorf("100 events made %d relists, want one or two", now-before)
		}
	})
}
