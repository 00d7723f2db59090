package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"podd/internal/pod"
)

// The apiserver's authorizer learns a moment later than the node which pods are bound to it.
func TestARefusalOfAnObjectThatAPodWasJustBoundWithIsNoAnswer(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("no relationship found between node and this object"))
	away := errors.New("connection refused")
	for what, c := range map[string]struct {
		grace, until time.Duration // of the error
		err          error
		want         error
		after        time.Duration
	}{
		"refused for a moment":          {2 * time.Second, 30 * time.Millisecond, forbidden, nil, 50 * time.Millisecond},
		"refused for a while":           {2 * time.Second, 300 * time.Millisecond, forbidden, nil, 350 * time.Millisecond},
		"refused for good":              {2 * time.Second, time.Hour, forbidden, forbidden, 1550 * time.Millisecond},
		"refused without a grace":       {0, time.Hour, forbidden, forbidden, 0},
		"another error is told at once": {2 * time.Second, time.Hour, away, away, 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				answer := func() error {
					if time.Since(begin) < c.until {
						return c.err
					}
					return nil
				}
				var told []error
				l := &lister{graceEnd: begin.Add(c.grace), onResult: func(err error) { told = append(told, err) }, ListWatch: &cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						return &v1.ConfigMapList{}, answer()
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						return watch.NewFake(), answer()
					},
				}}
				for _, request := range []func() error{
					func() error { _, err := l.WatchWithContext(t.Context(), metav1.ListOptions{}); return err },
					func() error { _, err := l.ListWithContext(t.Context(), metav1.ListOptions{}); return err },
				} {
					begin, told = time.Now(), nil
					l.graceEnd = begin.Add(c.grace)
					err := request()
					if !errors.Is(err, c.want) || time.Since(begin) != c.after || len(told) != 1 || !errors.Is(told[0], c.want) {
						t.Errorf("got %v after %v, told %v; want %v after %v", err, time.Since(begin), told, c.want, c.after)
					}
				}
			})
		})
	}
}

func TestARequestThatIsRepeatedEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		l := &lister{graceEnd: time.Now().Add(pod.BindingGrace)}
		err := l.retryForbidden(ctx, func() error { return apierrors.NewForbidden(schema.GroupResource{}, "", nil) })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// followed has FollowPods follow the node n of a server, and returns what it tells. Errors are
// none of the test's.
func followed(t *testing.T, server *httptest.Server) <-chan []*v1.Pod {
	t.Helper()
	f := files{t, t.TempDir()}
	f.write("ca.crt", (&place{Server: server}).ca())
	f.kubeconfig(server.URL, "{token: x}")
	c, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan []*v1.Pod, 10), make(chan struct{})
	go func() {
		defer close(done)
		c.FollowPods(ctx, "n", func(pods []*v1.Pod, err error) {
			if err == nil {
				got <- pods
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return got
}

// Nothing is listed anew: what a bookmark has said is where the next watch begins, and what
// happened between the two is in it.
func TestAWatchThatEndsGoesOnAfterItsLastBookmark(t *testing.T) {
	event := func(kind, version, rest string) string {
		return `{"type": "` + kind + `", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "` + version + `"` + rest + "}}}\n"
	}
	const web, whole = `, "name": "web", "namespace": "default", "uid": "u"`, `, "annotations": {"k8s.io/initial-events-end": "true"}`
	requests := make(chan url.Values, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		requests <- query
		w.Header().Set("Content-Type", "application/json")
		switch query.Get("resourceVersion") {
		case "7":
			_, _ = io.WriteString(w, event("DELETED", "8", web))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, event("ADDED", "1", web)+event("BOOKMARK", "2", whole)+event("BOOKMARK", "7", ""))
		}
	}))
	t.Cleanup(server.Close)
	got := followed(t, server)
	for i, want := range []int{1, 0} {
		select {
		case pods := <-got:
			if len(pods) != want {
				t.Errorf("told %d: got %d pods, want %d", i, len(pods), want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("was not told %d times", i+1)
		}
	}
	for i, from := range []string{"", "7"} {
		switch q := <-requests; {
		case q.Get("watch") != "true", q.Get("allowWatchBookmarks") != "true", q.Get("fieldSelector") != "spec.nodeName=n", q.Get("resourceVersion") != from,
			i == 0 && q.Get("sendInitialEvents") != "true":
			t.Errorf("request %d is %v, want a watch with bookmarks from version %q", i, q, from)
		}
	}
}
