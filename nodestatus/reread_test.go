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

// TestTheNodeIsReadOnceMoreForEachPodThatItKeepsOut, also where that takes long or fails.
func TestTheNodeIsReadOnceMoreForEachPodThatItKeepsOut(t *testing.T) {
	for name, refused := range map[string]error{"read": nil, "not to be read": errors.New("connection refused")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kept, again, reads int
				r := NewReread(func(context.Context) (*v1.Node, error) {
					reads++
					time.Sleep(3 * time.Second)
					return &v1.Node{}, refused
				}, func(*v1.Node) { kept++ }, func() { again++ }, slog.New(slog.DiscardHandler))
				for range 3 {
					if waits := r.For("a"); waits == "" {
						t.Fatal("it does not wait")
					}
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if waits := r.For("a"); waits != "" || reads != 1 || again != 1 || (kept == 1) != (refused == nil) {
					t.Errorf("it waits for %q, after %d reads, %d kept and %d calls", waits, reads, kept, again)
				}
				if waits := r.For("a"); waits == "" { // the pod is judged anew, much later
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
		r := NewReread(func(context.Context) (*v1.Node, error) { <-block; return &v1.Node{}, nil }, func(*v1.Node) {}, func() {}, slog.New(slog.DiscardHandler))
		ask := func(uid pod.UID) string {
			r.mu.Lock()
			defer r.mu.Unlock()
			if _, known := r.of[uid]; known {
				return "known"
			}
			return "unknown"
		}
		r.For("removed")
		close(block)
		synctest.Wait()
		block = make(chan struct{})
		r.For("slow")
		time.Sleep(2 * rereadKept)
		r.For("third")
		if ask("removed") != "unknown" || ask("slow") != "known" || ask("third") != "known" {
			t.Errorf("removed is %s, slow %s, third %s", ask("removed"), ask("slow"), ask("third"))
		}
		close(block)
	})
}
