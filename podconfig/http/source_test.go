package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podd/internal/pod"
	"podd/podconfig"
	"podd/podconfig/manifest"
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
		case <-time.After(time.Minute):
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
		{text(""), "response is empty"},
		{text("<html>maintenance</html>"), "not a Pod"},
		{text("kind: {"), "not valid YAML"},
		{text(strings.Repeat("#", 11<<20)), "10 MiB"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot query the server"},
	} {
		st.set(tc.answer)
		st.until("a=i:1", tc.want)
		if !st.last.Problems[len(st.last.Problems)-1].LastGoodInUse || st.last.Pods[0] != first {
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
		if st.last.Pods[1].UID() != uid || !st.last.Problems[0].LastGoodInUse {
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
	deadline := time.Now().Add(time.Minute)
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

// TestASecretInTheURLIsShownNowhere: a password, or a token in the query.
func TestASecretInTheURLIsShownNowhere(t *testing.T) {
	var log bytes.Buffer
	st := newStation(t, text(podYAML("a", "i")+"---\n"+podYAML("b", "i")+"  bogus: 1\n"))
	plain := st.cfg.URL
	st.cfg.URL = strings.Replace(plain, "http://", "http://user:hunter2@", 1) + "?token=hunter3"
	st.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	st.run()
	st.until("a=i", "bogus")
	d := st.last.Pods[0]
	// UIDs are what they were: another would restart each pod at an upgrade.
	whole := strings.Replace(plain, "http://", "http://user:xxxxx@", 1) + "?token=hunter3"
	want := manifest.Decode([]byte(podYAML("a", "i")), manifest.Options{NodeName: "node1", Source: pod.SourceHTTP, Origin: whole}).Pods[0].UID()
	if d.UID() != want {
		t.Errorf("got UID %s, want %s as ever", d.UID(), want)
	}
	raw, err := json.Marshal(d.Pod)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{d.Origin, string(raw), fmt.Sprint(st.last.Problems)}
	st.set(status(500))
	st.until("a=i", "500")
	shown = append(shown, fmt.Sprint(st.last.Problems))
	st.set(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	st.until("a=i", "cannot query the server")
	st.end()
	shown = append(shown, fmt.Sprint(st.last.Problems), log.String())
	for _, s := range shown {
		if strings.Contains(s, "hunter") {
			t.Errorf("shown: %s", s)
		}
	}
	if !strings.HasSuffix(d.Origin, "/pods?<masked>") {
		t.Errorf("origin: got %s, want the URL with its query masked", d.Origin)
	}
}

// TestARedirectTakesNoTokenWithIt: Go tells the next server the URL that sent it.
func TestARedirectTakesNoTokenWithIt(t *testing.T) {
	got := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case got <- fmt.Sprint(r.URL, r.Header):
		default:
		}
		fmt.Fprint(w, podYAML("a", "i"))
	}))
	defer other.Close()
	st := newStation(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	st.cfg.URL += "?token=hunter3"
	st.run()
	st.until("a=i", "")
	if said := <-got; strings.Contains(said, "hunter3") {
		t.Errorf("the other server was told %s", said)
	}
}

// TestTheLastGoodAnswerStaysUntilTheNewOneIsWritten: it was removed first, and a
// full disk or a power cut left none.
func TestTheLastGoodAnswerStaysUntilTheNewOneIsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	s := New(Config{URL: "http://cfg.test/pods", NodeName: "node1", StateDir: dir})
	keep := func(body string) {
		s.lastGood.Put(s.cfg.URL, []byte(body), false)
		s.flush()
	}
	keep("old")
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v, want one file", files, err)
	}
	goodFile := filepath.Join(dir, files[0].Name())
	other := filepath.Join(dir, "another")
	if err := os.WriteFile(other, []byte("of another URL"), 0o600); err != nil {
		t.Fatal(err)
	}
	half := goodFile + ".new"
	if err := os.Mkdir(half, 0o700); err != nil { // nothing can be written
		t.Fatal(err)
	}
	keep("new")
	if text, err := os.ReadFile(goodFile); string(text) != "old" {
		t.Errorf("after a write that failed: got %q (%v), want the old answer", text, err)
	}
	if err := os.RemoveAll(half); err != nil {
		t.Fatal(err)
	}
	keep("new")
	if text, err := os.ReadFile(goodFile); string(text) != "new" {
		t.Errorf("got %q (%v), want the new answer", text, err)
	}
	if _, err := os.Lstat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another URL's answer: got %v, want it gone", err)
	}
}

// A redirect to http would bring the pods, and send the headers, in the clear:
// none is followed from https, on whatever way the request came there.
func TestARedirectFromHTTPSToHTTPIsNotFollowed(t *testing.T) {
	var asked atomic.Int32
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, podYAML("a", "i"))
	}))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/secure":
			fmt.Fprint(w, podYAML("s", "i"))
		case "/again":
			http.Redirect(w, r, "/secure", http.StatusFound)
		default:
			http.Redirect(w, r, plain.URL, http.StatusFound)
		}
	}))
	defer secure.Close()
	first := httptest.NewServer(http.RedirectHandler(secure.URL, http.StatusFound))
	defer first.Close()
	for _, url := range []string{secure.URL, first.URL} {
		s := New(Config{URL: url, NodeName: "node1", Transport: secure.Client().Transport})
		s.poll(t.Context())
		if n := asked.Load(); n != 0 || len(s.content.Pods) != 0 || s.failure == nil || !strings.Contains(s.failure.Message, "from https to http") {
			t.Errorf("%s: asked %d times in the clear, %d pods, %v, want the redirect refused", url, n, len(s.content.Pods), s.failure)
		}
	}
	for _, url := range []string{secure.URL + "/again", first.URL} {
		s := New(Config{URL: url, NodeName: "node1", Transport: secure.Client().Transport})
		if url == first.URL {
			first.Config.Handler = http.RedirectHandler(secure.URL+"/again", http.StatusFound)
		}
		if s.poll(t.Context()); len(s.content.Pods) != 1 || s.failure != nil {
			t.Errorf("%s, from https to https or from http to https: got %d pods, %v", url, len(s.content.Pods), s.failure)
		}
	}
}

// A server that never answered is asked after 1, 2, 4, 8 and 16 s, then each 20 s.
func TestAServerThatNeverAnsweredIsAskedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var asked []int
		down := roundTrip(func(*http.Request) (*http.Response, error) {
			asked = append(asked, int(time.Since(begun).Seconds()))
			return nil, errors.New("down")
		})
		ctx, stop := context.WithCancel(t.Context())
		out := make(chan podconfig.Snapshot, 1)
		go New(Config{URL: "http://example.test/pods", NodeName: "node1", Transport: down}).Run(ctx, out)
		time.Sleep(72 * time.Second)
		stop()
		synctest.Wait()
		if got, want := fmt.Sprint(asked), "[0 1 3 7 15 31 51 71]"; got != want {
			t.Errorf("got it asked after so many seconds: %s, want %s", got, want)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that answers with more pods than a machine can have takes none away.
func TestAResponseWithTooManyPodsIsRejectedAsAWhole(t *testing.T) {
	st := serve(t, text(podYAML("a", "i:1")), nil)
	st.until("a=i:1", "")
	var many strings.Builder
	for i := range manifest.MaxPods + 1 {
		fmt.Fprintf(&many, "---\n%s", podYAML(fmt.Sprintf("p%d", i), "i"))
	}
	st.set(text(many.String()))
	st.until("a=i:1", "the manifest describes more than 2000 pods")
	st.set(text(podYAML("a", "i:2")))
	st.until("a=i:2", "")
}
