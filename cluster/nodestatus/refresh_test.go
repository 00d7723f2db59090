package nodestatus

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// running runs a NodeRefresher until stop is called.
func running(t *testing.T, r *NodeRefresher) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v", err)
		}
	}
}

// TestOneReadServesAllWhoAskedBefore, and ends with Run.
func TestOneReadServesAllWhoAskedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, inFlight, ended := 0, 0, false
		r := NewNodeRefresher(func(ctx context.Context) (*v1.Node, error) {
			reads++
			if inFlight++; inFlight > 1 {
				t.Error("two reads are in flight")
			}
			defer func() { inFlight-- }()
			select {
			case <-time.After(time.Second):
				return &v1.Node{}, nil
			case <-ctx.Done():
				ended = true
				return nil, ctx.Err()
			}
		}, func(*v1.Node) {}, func() {}, slog.New(slog.DiscardHandler))
		stop := running(t, r)
		r.Refresh("first")
		synctest.Wait() // it is read for the first
		pods := []pod.UID{"a", "b", "c"}
		for _, uid := range pods {
			r.Refresh(uid)
		}
		time.Sleep(1500 * time.Millisecond)
		for _, uid := range pods {
			if r.Refresh(uid) == "" {
				t.Errorf("%s: served by a read that had begun before it asked", uid)
			}
		}
		time.Sleep(time.Second)
		for _, uid := range append(pods, "first") {
			if waits := r.Refresh(uid); waits != "" {
				t.Errorf("%s waits for %q", uid, waits)
			}
		}
		if reads != 2 {
			t.Errorf("%d reads for 4 pods, want 2", reads)
		}
		r.Refresh("last")
		synctest.Wait()
		stop()
		if !ended {
			t.Error("the read goes on without Run")
		}
	})
}

// TestTheNodeIsReadOnceMoreForEachPodThatItKeepsOut, also where that takes long or fails.
func TestTheNodeIsReadOnceMoreForEachPodThatItKeepsOut(t *testing.T) {
	for name, refused := range map[string]error{"read": nil, "not to be read": errors.New("connection refused")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kept, again, reads int
				r := NewNodeRefresher(func(context.Context) (*v1.Node, error) {
					reads++
					time.Sleep(3 * time.Second)
					return &v1.Node{}, refused
				}, func(*v1.Node) { kept++ }, func() { again++ }, slog.New(slog.DiscardHandler))
				defer running(t, r)()
				for range 3 {
					if waits := r.Refresh("a"); waits == "" {
						t.Fatal("it does not wait")
					}
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if waits := r.Refresh("a"); waits != "" || reads != 1 || again != 1 || (kept == 1) != (refused == nil) {
					t.Errorf("it waits for %q, after %d reads, %d kept and %d calls", waits, reads, kept, again)
				}
				if waits := r.Refresh("a"); waits == "" { // the pod is judged anew, much later
					t.Error("the Node is not read anew")
				}
				time.Sleep(5 * time.Second)
			})
		})
	}
}

// TestAPodThatWasRemovedMeanwhileIsForgotten, and those that still wait are not.
func TestAPodThatWasRemovedMeanwhileIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		r := NewNodeRefresher(func(context.Context) (*v1.Node, error) { <-block; return &v1.Node{}, nil }, func(*v1.Node) {}, func() {}, slog.New(slog.DiscardHandler))
		stop := running(t, r)
		ask := func(uid pod.UID) string {
			r.mu.Lock()
			defer r.mu.Unlock()
			if _, known := r.readAt[uid]; known {
				return "known"
			}
			return "unknown"
		}
		r.Refresh("removed")
		close(block)
		synctest.Wait()
		block = make(chan struct{})
		r.Refresh("slow")
		time.Sleep(2 * refreshTTL)
		r.Refresh("third")
		if ask("removed") != "unknown" || ask("slow") != "known" || ask("third") != "known" {
			t.Errorf("removed is %s, slow %s, third %s", ask("removed"), ask("slow"), ask("third"))
		}
		close(block)
		stop()
	})
}

// TestEachJudgementOfAPodIsAfterAReadOfItsOwn, whatever is read for others meanwhile.
func TestEachJudgementOfAPodIsAfterAReadOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewNodeRefresher(func(context.Context) (*v1.Node, error) { time.Sleep(time.Second); return &v1.Node{}, nil }, func(*v1.Node) {}, func() {}, slog.New(slog.DiscardHandler))
		stop := running(t, r)
		for _, step := range []struct {
			uid   pod.UID
			waits bool
		}{
			{"a", true}, {"b", true}, // a has been read for, and asks later than b
			{"a", false}, {"b", false}, {"c", true},
			{"a", true}, {"b", true}, {"c", false}, {"a", false}, {"b", false},
		} {
			if got := r.Refresh(step.uid) != ""; got != step.waits {
				t.Errorf("%s waits: got %t, want %t", step.uid, got, step.waits)
			}
			time.Sleep(2 * time.Second)
		}
		stop()
	})
}
