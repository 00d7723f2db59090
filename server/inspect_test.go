package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestInspectSaysWhatBecameOfTheQuestion: an answer, no such container, a runtime that
// is away, and one that does not answer in time.
func TestInspectSaysWhatBecameOfTheQuestion(t *testing.T) {
	s, _ := start(t, nil)
	for _, tt := range []struct {
		query  string
		result error
		code   int
		answer string
	}{
		{"uid=uid-a", nil, 200, `"a"`},
		{"uid=uid-a&container=c", nil, 200, `"ac"`},
		{"uid=uid-a&container=d", nil, 404, "no such container"},
		{"uid=uid-x", nil, 404, "no such pod"},
		{"uid=uid-a", errors.New("the runtime is away"), 503, "the runtime is away"},
		{"uid=uid-a", fmt.Errorf("ask: %w", context.DeadlineExceeded), 504, "deadline exceeded"},
	} {
		s.runtime.(*fakeRuntime).result = tt.result
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
		s := New(Config{Pods: n, Metrics: prometheus.NewRegistry()})
		s.Attach(&fakeRuntime{hangs: true})
		w := httptest.NewRecorder()
		s.inspect(w, httptest.NewRequestWithContext(t.Context(), "GET", "/podd/v1/inspect?uid=uid-a", nil))
		if w.Code != 504 {
			t.Errorf("got %d %s, want 504", w.Code, w.Body)
		}
	})
}

// TestBeforeTheRuntimeHasRespondedRequestsSayWhatIsMissing, except that a pod has no
// volumes yet: `podd describe` shows the rest of it.
func TestBeforeTheRuntimeHasRespondedRequestsSayWhatIsMissing(t *testing.T) {
	n := &node{}
	n.set(aPod("a", runs))
	s := New(Config{Pods: n, Metrics: prometheus.NewRegistry()})
	get := func(handler http.HandlerFunc, path string) (int, string) {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		return w.Code, w.Body.String()
	}
	if code, body := get(s.inspect, "/podd/v1/inspect?uid=uid-a"); code != 503 || !strings.Contains(body, "has not responded yet") {
		t.Errorf("inspect: got %d %s, want 503 and the reason", code, body)
	}
	if code, body := get(s.summary, "/stats/summary"); code != 503 || !strings.Contains(body, "has not responded yet") {
		t.Errorf("summary: got %d %s, want 503 and the reason", code, body)
	}
	if code, body := get(s.volumes, "/podd/v1/volumes?uid=uid-a"); code != 200 || strings.TrimSpace(body) != `{"volumes":[]}` {
		t.Errorf("volumes: got %d %s, want none", code, body)
	}
	s.Attach(&fakeRuntime{})
	if code, body := get(s.inspect, "/podd/v1/inspect?uid=uid-a"); code != 200 {
		t.Errorf("inspect afterwards: got %d %s, want 200", code, body)
	}
}

// fakeRuntime has one volume for each pod.
type fakeRuntime struct {
	logs    string // a directory
	hangs   bool
	saved   []string // of each Checkpoint
	result  error    // of Inspect and Summary
	storage []bool   // whether it was asked for, of each Summary
}

func (f *fakeRuntime) Images(context.Context) ([]Image, error) {
	return []Image{{ID: "sha256:1", Names: []string{"reg.test/a:1"}, Size: 7, Pods: []string{"default/a"}}}, f.result
}

func (f *fakeRuntime) RemoveImages(_ context.Context, name string) ([]Image, error) {
	if name == "none" {
		return nil, fmt.Errorf("%w: no image none", pod.ErrNotFound)
	}
	return []Image{{ID: "sha256:2", Names: []string{name}}}, f.result
}

func (*fakeRuntime) Volumes(*v1.Pod) []Volume { return []Volume{{Name: "data", Path: "/d"}} }

func (f *fakeRuntime) Inspect(ctx context.Context, p *v1.Pod, c string) (any, error) {
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.Name + c, f.result
}

func (f *fakeRuntime) ResourceMetrics(_ context.Context, w io.Writer) error {
	if f.result != nil {
		return f.result
	}
	_, err := io.WriteString(w, "node_memory_working_set_bytes 1\n")
	return err
}

func (f *fakeRuntime) CadvisorMetrics(_ context.Context, w io.Writer) error {
	if f.result != nil {
		return f.result
	}
	_, err := io.WriteString(w, strings.Repeat("container_last_seen 1\n", 1000))
	return err
}

func (f *fakeRuntime) Summary(_ context.Context, storage bool) (any, error) {
	f.storage = append(f.storage, storage)
	return map[string]string{"node": "n"}, f.result
}

func (f *fakeRuntime) Checkpoint(_ context.Context, containerID, file string, timeout time.Duration) error {
	f.saved = append(f.saved, fmt.Sprint(containerID, " ", file, " ", timeout))
	return f.result
}
