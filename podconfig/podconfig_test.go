package podconfig_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"podd/internal/pod"
	"podd/podconfig"
)

// script is a source that says what a test tells it to.
type script struct {
	name pod.Source
	say  chan podconfig.Snapshot
	fail chan error
}

func newScript(name pod.Source) *script {
	return &script{name: name, say: make(chan podconfig.Snapshot), fail: make(chan error)}
}

func (s *script) Name() pod.Source { return s.name }

func (s *script) Run(ctx context.Context, out chan<- podconfig.Snapshot) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.fail:
			return err
		case snap := <-s.say:
			select {
			case out <- snap:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func desired(source pod.Source, origin, name, uid string) *pod.Desired {
	return &pod.Desired{Source: source, Origin: origin, Line: 1,
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: pod.UID(uid)}}}
}

func pods(p ...*pod.Desired) podconfig.Snapshot { return podconfig.Snapshot{Pods: p} }

// world is a PodConfig within a bubble, and what it has told.
type world struct {
	t    *testing.T
	conf *podconfig.PodConfig
	told chan string
	// applies is how long the reader takes for an update.
	applies time.Duration
}

func start(t *testing.T, reg prometheus.Registerer, sources ...podconfig.Source) *world {
	return startWith(t, podconfig.Config{Sources: sources, Registerer: reg})
}

func startWith(t *testing.T, cfg podconfig.Config) *world {
	ctx, stop := context.WithCancel(t.Context())
	w := &world{t: t, conf: podconfig.New(cfg), told: make(chan string, 1000)}
	ended := make(chan error, 1)
	go func() { ended <- w.conf.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v", err)
		}
	})
	return w
}

func (w *world) read() *world {
	go func() {
		for u := range w.conf.Updates() {
			if u.Op == pod.OpRemove && len(u.Pods) == 0 {
				continue // it only shows that the one before was applied
			}
			time.Sleep(w.applies)
			names := []string{}
			for _, d := range u.Pods {
				names = append(names, d.Pod.Name+"="+string(d.UID()))
			}
			w.told <- fmt.Sprintf("%s %s %s", u.Source, u.Op, strings.Join(names, ","))
		}
	}()
	return w
}

// expect compares what was told since the last call.
func (w *world) expect(want ...string) {
	w.t.Helper()
	time.Sleep(50 * w.applies)
	synctest.Wait()
	var got []string
	for len(w.told) > 0 {
		got = append(got, <-w.told)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("told\n got %q\nwant %q", got, want)
	}
}

func TestAnEditedManifestsOldPodIsRemovedBeforeTheNewOneIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(pod.SourceFile)
		w := start(t, nil, f).read()
		f.say <- pods(desired("file", "a.yaml", "a", "1"), desired("file", "b.yaml", "b", "2"))
		w.expect("file ADD a=1,b=2")
		f.say <- pods(desired("file", "a.yaml", "a", "3"), desired("file", "b.yaml", "b", "2"))
		w.expect("file REMOVE a=1", "file ADD a=3")
		f.say <- pods(desired("file", "a.yaml", "a", "3"), desired("file", "b.yaml", "b", "2"))
		w.expect()
		f.say <- pods()
		w.expect("file REMOVE a=3,b=2")
	})
}

// kubernetes/kubernetes#112814: while the apiserver cannot be reached, removed
// and changed static pods were not stopped.
func TestASilentSourceHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, silent := newScript(pod.SourceFile), newScript(pod.SourceAPIServer)
		w := start(t, nil, f, silent).read()
		synctest.Wait()
		if w.conf.Seen(pod.SourceFile) {
			t.Error("a source that has said nothing counts as seen")
		}
		f.say <- pods(desired("file", "a.yaml", "a", "1"))
		w.expect("file ADD a=1")
		f.say <- pods()
		w.expect("file REMOVE a=1")
		if !w.conf.Seen(pod.SourceFile) || w.conf.Seen(pod.SourceAPIServer) || w.conf.SeenAll() {
			t.Errorf("seen: file %v, api %v, all %v; want true, false, false", w.conf.Seen(pod.SourceFile), w.conf.Seen(pod.SourceAPIServer), w.conf.SeenAll())
		}
		silent.say <- pods()
		w.expect("api ADD ")
		if !w.conf.SeenAll() {
			t.Error("all have spoken, want SeenAll")
		}
	})
}

func TestASourceIsSeenOnlyOnceTheReaderHasItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(pod.SourceFile)
		w := start(t, nil, f)
		f.say <- pods(desired("file", "a.yaml", "a", "1"))
		synctest.Wait()
		if w.conf.Seen(pod.SourceFile) {
			t.Error("seen before the reader took the pods: their containers would be cleaned up as orphans")
		}
		w.read().expect("file ADD a=1")
		if !w.conf.Seen(pod.SourceFile) {
			t.Error("want seen")
		}
	})
}

func TestAnIncompleteSnapshotChangesNothingButProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newScript(pod.SourceHTTP)
		w := start(t, nil, h).read()
		h.say <- podconfig.Snapshot{Incomplete: true, Problems: []pod.Problem{{Origin: "http://x", Message: "down"}}}
		w.expect()
		if w.conf.Seen(pod.SourceHTTP) || len(w.conf.Problems()) != 1 {
			t.Errorf("seen %v, problems %v; want not seen, one problem", w.conf.Seen(pod.SourceHTTP), w.conf.Problems())
		}
		h.say <- pods(desired("http", "http://x", "a", "1"))
		w.expect("http ADD a=1")
		h.say <- podconfig.Snapshot{Incomplete: true}
		w.expect()
	})
}

func TestASlowReaderNeverBlocksASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := newScript(pod.SourceFile), newScript(pod.SourceHTTP)
		w := start(t, nil, f, h)
		for i := range 100 {
			f.say <- pods(desired("file", "a.yaml", "a", fmt.Sprint(i)))
			h.say <- pods(desired("http", "http://x", "b", fmt.Sprint(i)))
		}
		w.read()
		synctest.Wait()
		var last string
		for len(w.told) > 0 {
			last = <-w.told
		}
		if !strings.Contains(last, "=99") {
			t.Errorf("last told: %q, want the newest", last)
		}
	})
}

func TestOfTwoPodsOfOneNameTheRunningOneStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(pod.SourceFile)
		w := start(t, nil, f).read()
		b := desired("file", "b.yaml", "web", "2")
		f.say <- pods(b)
		w.expect("file ADD web=2")
		a := desired("file", "a.yaml", "web", "1")
		f.say <- pods(a, b)
		w.expect()
		p := w.conf.Problems()
		if len(p) != 1 || p[0].Origin != "a.yaml" || !strings.Contains(p[0].Message, "b.yaml:1") {
			t.Errorf("problems: got %v, want one of a.yaml that names b.yaml", p)
		}
		edited := desired("file", "b.yaml", "web", "3")
		f.say <- pods(a, edited)
		w.expect("file REMOVE web=2", "file ADD web=3")
		f.say <- pods(a)
		w.expect("file REMOVE web=3", "file ADD web=1")
		if p := w.conf.Problems(); len(p) != 0 {
			t.Errorf("problems: got %v, want none", p)
		}
	})
}

func TestANameThatTwoSourcesWantGoesOverWhenItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := newScript(pod.SourceFile), newScript(pod.SourceHTTP)
		w := start(t, nil, f, h).read()
		h.say <- pods(desired("http", "http://x", "web", "1"))
		w.expect("http ADD web=1")
		f.say <- pods(desired("file", "a.yaml", "web", "2"))
		w.expect("file ADD ")
		h.say <- pods()
		w.expect("http REMOVE web=1", "file ADD web=2")
	})
}

func TestChangesOfOneUIDAreUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newScript(pod.SourceAPIServer)
		w := start(t, nil, api).read()
		say := func(change func(*v1.Pod)) {
			d := desired("api", "apiserver", "a", "1")
			change(d.Pod)
			api.say <- pods(d)
		}
		say(func(*v1.Pod) {})
		w.expect("api ADD a=1")
		say(func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationSeen: "now"} })
		w.expect()
		say(func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
		w.expect("api RECONCILE a=1")
		labelled := func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }
		say(labelled)
		w.expect("api UPDATE a=1")
		say(func(p *v1.Pod) { labelled(p); p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		w.expect("api DELETE a=1")
	})
}

func TestASourceThatFailsIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		f := newScript(pod.SourceFile)
		w := start(t, reg, f).read()
		f.say <- pods(desired("file", "a.yaml", "a", "1"))
		w.expect("file ADD a=1")
		f.fail <- errors.New("no more inotify instances")
		synctest.Wait()
		p := w.conf.Problems()
		if len(p) != 1 || !strings.Contains(p[0].Message, "no more inotify instances") {
			t.Errorf("problems: got %v", p)
		}
		w.expect()
		time.Sleep(time.Second)
		f.say <- pods(desired("file", "a.yaml", "a", "1"))
		w.expect()
		if p := w.conf.Problems(); len(p) != 0 {
			t.Errorf("problems: got %v, want none", p)
		}
		want := "# HELP podd_source_failures_total Times a source failed and was started again.\n# TYPE podd_source_failures_total counter\npodd_source_failures_total{source=\"file\"} 1\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "podd_source_failures_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestProblemsAreBoundedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		f := newScript(pod.SourceFile)
		w := start(t, reg, f).read()
		var many []pod.Problem
		for i := range 600 {
			many = append(many, pod.Problem{Origin: "a.yaml", Line: i, Message: "bad"})
		}
		f.say <- podconfig.Snapshot{Problems: many}
		w.expect("file ADD ")
		first := time.Now()
		p := w.conf.Problems()
		if len(p) != 501 || !strings.Contains(p[500].Message, "100 more") {
			t.Errorf("got %d problems, the last %q", len(p), p[len(p)-1].Message)
		}
		time.Sleep(time.Minute)
		warning := pod.Problem{Origin: "b.yaml", Message: "odd", Warning: true}
		f.say <- podconfig.Snapshot{Problems: []pod.Problem{many[0], warning}}
		w.expect()
		if p := w.conf.Problems(); len(p) != 2 || !p[0].Since.Equal(first) || !p[1].Warning {
			t.Errorf("got %v, want one problem, known since %v, and a warning", p, first)
		}
		want := "# HELP podd_manifest_errors_total Problems of manifests that have appeared, warnings aside.\n# TYPE podd_manifest_errors_total counter\npodd_manifest_errors_total{source=\"file\"} 600\n" +
			"# HELP podd_manifest_problems Problems of manifests at present, warnings aside; podd ps names them.\n# TYPE podd_manifest_problems gauge\npodd_manifest_problems{source=\"file\"} 1\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "podd_manifest_errors_total", "podd_manifest_problems"); err != nil {
			t.Error(err)
		}
	})
}

// What a source had at an earlier contact runs, and says nothing about what else it wants.
func TestStoredPodsDoNotMakeTheirSourceReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, api := newScript(pod.SourceFile), newScript(pod.SourceAPIServer)
		w := start(t, nil, f, api)
		type update struct {
			op          pod.Op
			source      pod.Source
			provisional bool
			pods        int
		}
		var got []update
		go func() {
			for u := range w.conf.Updates() {
				got = append(got, update{u.Op, u.Source, u.Provisional, len(u.Pods)})
			}
		}()
		expect := func(what string, want ...update) {
			t.Helper()
			synctest.Wait()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
			got = nil
		}
		stored := func(p ...*pod.Desired) podconfig.Snapshot {
			return podconfig.Snapshot{Pods: p, Provisional: true}
		}
		a, b, c := desired("api", "https://x", "a", "1"), desired("api", "https://x", "b", "2"), desired("api", "https://x", "c", "3")
		static := desired("file", "f.yaml", "s", "4")
		api.say <- stored(a, b)
		expect("stored", update{pod.OpAdd, pod.SourceAPIServer, true, 2})
		f.say <- pods(static)
		expect("another source", update{pod.OpAdd, pod.SourceFile, false, 1})
		if w.conf.Seen(pod.SourceAPIServer) || w.conf.SeenAll() || !w.conf.Seen(pod.SourceFile) {
			t.Error("the source counts as ready")
		}
		api.say <- pods(b, c)
		expect("the whole set", update{pod.OpRemove, pod.SourceAPIServer, true, 1}, update{pod.OpAdd, pod.SourceAPIServer, false, 1})
		if !w.conf.SeenAll() {
			t.Error("the source does not count as ready")
		}
		api.say <- pods(c)
		expect("later", update{pod.OpRemove, pod.SourceAPIServer, false, 1})
	})
}

func TestASourceWhoseStoredPodsAreAllThatItWantsBecomesReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newScript(pod.SourceAPIServer)
		w := start(t, nil, api)
		last := make(chan pod.Update, 9)
		go func() {
			for u := range w.conf.Updates() {
				last <- u
			}
		}()
		a := desired("api", "https://x", "a", "1")
		api.say <- podconfig.Snapshot{Pods: []*pod.Desired{a}, Provisional: true}
		<-last
		api.say <- pods(a)
		if u := <-last; u.Op != pod.OpAdd || u.Provisional || len(u.Pods) != 0 {
			t.Errorf("got %+v", u)
		}
	})
}
