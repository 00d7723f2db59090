package http

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"podd/podconfig"
)

func podYAML(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  containers:\n  - name: c\n    image: " + image + "\n"
}

// station is a source that asks a server of the test's own.
type station struct {
	t      *testing.T
	server *httptest.Server
	out    chan podconfig.Snapshot
	last   podconfig.Snapshot
	asked  atomic.Int32
	cfg    Config
	end    func()

	mu     sync.Mutex
	answer http.HandlerFunc
}

func serve(t *testing.T, answer http.HandlerFunc, header http.Header) *station {
	t.Helper()
	st := newStation(t, answer)
	st.cfg.Header = header
	st.run()
	return st
}

// newStation has a server and no source yet.
func newStation(t *testing.T, answer http.HandlerFunc) *station {
	t.Helper()
	st := &station{t: t, answer: answer, out: make(chan podconfig.Snapshot)}
	st.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st.asked.Add(1)
		st.mu.Lock()
		answer := st.answer
		st.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(st.server.Close)
	st.cfg = Config{URL: st.server.URL + "/pods", NodeName: "node1", CheckFrequency: 10 * time.Millisecond}
	return st
}

// run starts a source, as a podd that starts does, after the end of the one
// before it.
func (st *station) run() {
	if st.end != nil {
		st.end()
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- New(st.cfg).Run(ctx, st.out) }()
	st.end = sync.OnceFunc(func() {
		stop()
		for {
			select {
			case <-st.out:
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					st.t.Errorf("Run: got %v", err)
				}
				return
			}
		}
	})
	st.t.Cleanup(st.end)
}

func (st *station) set(answer http.HandlerFunc) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.answer = answer
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func (st *station) show() string {
	var parts []string
	for _, d := range st.last.Pods {
		parts = append(parts, strings.TrimSuffix(d.Pod.Name, "-node1")+"="+d.Pod.Spec.Containers[0].Image)
	}
	if st.last.Incomplete {
		parts = append(parts, "incomplete")
	}
	return strings.Join(parts, " ")
}

// until waits for these pods and a problem that holds the text, or none for "".
func (st *station) until(want, problem string) {
	st.t.Helper()
	for {
		select {
		case st.last = <-st.out:
		case <-time.After(10 * time.Second):
			st.t.Fatalf("got %q, problems %v, want %q, %q", st.show(), st.last.Problems, want, problem)
		}
		told := ""
		for _, p := range st.last.Problems {
			told += p.String() + "\n"
		}
		if st.show() == want && strings.Contains(told, problem) && (problem != "" || told == "") {
			return
		}
	}
}

func TestAServerThatFailsOrAnswersRubbishStopsNothing(t *testing.T) {
	st := serve(t, text(podYAML("a", "i:1")), nil)
	st.until("a=i:1", "")
	first := st.last.Pods[0]
	for _, tc := range []struct {
		answer http.HandlerFunc
		want   string
	}{
		{status(500), "500 Internal Server Error"},
		{status(404), "404 Not Found"},
		{status(401), "check the manifest URL's headers"},
		{text(""), "answer is empty"},
		{text("<html>maintenance</html>"), "not a Pod"},
		{text("kind: {"), "not valid YAML"},
		{text(strings.Repeat("#", 11<<20)), "10 MiB"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "asking the server does not work"},
	} {
		st.set(tc.answer)
		st.until("a=i:1", tc.want)
		if !st.last.Problems[len(st.last.Problems)-1].KeptRunning || st.last.Pods[0] != first {
			t.Errorf("%s: got %+v, want the last good pod kept", tc.want, st.last.Problems)
		}
	}
	st.set(text(podYAML("a", "i:2")))
	st.until("a=i:2", "")
	st.set(text(`{"apiVersion":"v1","kind":"PodList","items":[]}`))
	st.until("", "")
}

// A podd that started while one of several pods was broken took the others for
// all there is, and ended the broken one, which ran.
func TestAPoddThatStartsWhileAPodIsBrokenKnowsItsLastGoodVersion(t *testing.T) {
	st := newStation(t, text(podYAML("a", "i:1")+"---\n"+podYAML("b", "i:1")))
	st.cfg.StateDir = filepath.Join(t.TempDir(), "kept")
	st.run()
	st.until("a=i:1 b=i:1", "")
	uid := st.last.Pods[1].UID()
	st.asked.Store(0)
	for st.asked.Load() < 2 { // by then the answer is kept
		time.Sleep(time.Millisecond)
	}
	for answer, want := range map[string]string{
		podYAML("a", "i:2") + "---\n" + podYAML("b", "i:2") + "  bogus: 1\n": "a=i:2 b=i:1",
		"<html>maintenance</html>": "a=i:1 b=i:1",
	} {
		st.set(text(answer))
		st.run()
		st.until(want, st.server.URL)
		if st.last.Pods[1].UID() != uid || !st.last.Problems[0].KeptRunning {
			t.Errorf("%s: got %v and %+v, want the pod that ran, and that this is said", want, st.last.Pods[1].UID(), st.last.Problems)
		}
	}
	if fi, err := os.Stat(st.cfg.StateDir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("what is kept may hold passwords: %v, %v", fi.Mode(), err)
	}
	st.cfg.StateDir = "" // nothing is known of before
	st.set(text("<html>maintenance</html>"))
	st.run()
	st.until("incomplete", "not a Pod")
}

func TestAServerThatWasNeverReachedHasNotSpoken(t *testing.T) {
	st := serve(t, status(503), nil)
	st.until("incomplete", "503")
	st.set(text("rubbish"))
	st.until("incomplete", "not a Pod")
	st.set(text(podYAML("a", "i")))
	st.until("a=i", "")
}

func TestListsAndSeveralDocuments(t *testing.T) {
	st := serve(t, text(podYAML("a", "i")+"---\n"+podYAML("b", "i")), nil)
	st.until("a=i b=i", "")
	st.set(text("apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: c}\n  spec: {containers: [{name: c, image: i}]}\n"))
	st.until("c=i", "")
	st.set(text(podYAML("c", "i") + "  bogus: 1\n---\n" + podYAML("d", "i")))
	st.until("d=i c=i", "bogus")
}

func TestAnUnchangedAnswerIsNotSentTwice(t *testing.T) {
	var full, conditional atomic.Int32
	st := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"v1"` {
			conditional.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		full.Add(1)
		w.Header().Set("ETag", `"v1"`)
		fmt.Fprint(w, podYAML("a", "i"))
	}, nil)
	st.until("a=i", "")
	deadline := time.Now().Add(10 * time.Second)
	for conditional.Load() < 5 && time.Now().Before(deadline) {
		select {
		case st.last = <-st.out:
			t.Errorf("told again: %q", st.show())
		case <-time.After(time.Millisecond):
		}
	}
	if full.Load() != 1 || conditional.Load() < 5 {
		t.Errorf("got %d full answers and %d conditional ones, want 1 and at least 5", full.Load(), conditional.Load())
	}
}

func TestHeadersAreSentButNotToAnotherHost(t *testing.T) {
	got := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- "other " + r.Header.Get("X-Token")
		fmt.Fprint(w, podYAML("a", "i"))
	}))
	defer other.Close()
	st := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- "own " + r.Header.Get("X-Token")
		http.Redirect(w, r, other.URL, http.StatusFound)
	}, http.Header{"X-Token": {"secret"}})
	st.until("a=i", "")
	if a, b := <-got, <-got; a != "own secret" || b != "other " {
		t.Errorf("got %q then %q", a, b)
	}
}

func TestARedirectLoopEnds(t *testing.T) {
	st := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }, nil)
	st.until("incomplete", "redirects more than 5 times")
}

func TestAURLMustBeOne(t *testing.T) {
	for _, u := range []string{"", "example.test/pods", "ftp://u:hunter2@example.test", "http://", ":", "http://u:hunter2@%zz/"} {
		err := New(Config{URL: u}).Run(t.Context(), nil)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v, want a refusal without the password", u, err)
		}
	}
}

func TestAPasswordInTheURLIsShownNowhere(t *testing.T) {
	s := New(Config{URL: "http://user:hunter2@127.0.0.1:1/pods", NodeName: "node1"})
	s.ask(t.Context())
	if p := s.failure; p == nil || strings.Contains(p.String(), "hunter2") {
		t.Errorf("got %v", p)
	}
}
