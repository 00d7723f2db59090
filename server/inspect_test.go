package server

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// TestInspectSaysWhatBecameOfTheQuestion: an answer, no such container, a runtime that
// is away, and one that does not answer in time.
func TestInspectSaysWhatBecameOfTheQuestion(t *testing.T) {
	var result error
	s, _ := start(t, func(c *Config) {
		c.Inspect = func(_ context.Context, p *v1.Pod, container string) (any, error) {
			return p.Name + "/" + container, result
		}
	})
	for _, tt := range []struct {
		query  string
		result error
		code   int
		answer string
	}{
		{"uid=uid-a", nil, 200, `"a/"`},
		{"uid=uid-a&container=c", nil, 200, `"a/c"`},
		{"uid=uid-a&container=d", nil, 404, "no such container"},
		{"uid=uid-x", nil, 404, "no such pod"},
		{"uid=uid-a", errors.New("the runtime is away"), 503, "the runtime is away"},
		{"uid=uid-a", fmt.Errorf("ask: %w", context.DeadlineExceeded), 504, "deadline exceeded"},
	} {
		result = tt.result
		if code, body := get(t, s, "socket", "/podd/v1/inspect?"+tt.query); code != tt.code || !strings.Contains(body, tt.answer) {
			t.Errorf("%s: got %d %q, want %d %s", tt.query, code, body, tt.code, tt.answer)
		}
	}
}

// TestARuntimeThatHangsEndsTheQuestionInTime.
func TestARuntimeThatHangsEndsTheQuestionInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		n.set(aPod("a", runs))
		s := New(Config{Pods: n, Metrics: prometheus.NewRegistry(), Inspect: func(ctx context.Context, _ *v1.Pod, _ string) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		w := httptest.NewRecorder()
		s.inspect(w, httptest.NewRequestWithContext(t.Context(), "GET", "/podd/v1/inspect?uid=uid-a", nil))
		if w.Code != 504 {
			t.Errorf("got %d %s, want 504", w.Code, w.Body)
		}
	})
}
