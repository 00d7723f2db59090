package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// telling is a store whose news are kept: the names of the pods, sorted, or an error.
func telling() (s *store[*v1.Pod], news *[]string) {
	news = &[]string{}
	return &store[*v1.Pod]{set: func(pods []*v1.Pod, err error) {
		var names []string
		for _, p := range pods {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		text := strings.Join(names, " ")
		if err != nil {
			text += "error: " + err.Error()
		}
		*news = append(*news, text)
	}}, news
}

func podNamed(name, uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
}

// It may be replaced by another of its name, which has another UID, before it is deleted.
func TestTheObjectsThatAreFollowed(t *testing.T) {
	s, news := telling()
	web, db, newer := podNamed("web", "1"), podNamed("db", "2"), podNamed("web-of-later", "1")
	must := func(what string, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(*news, want) {
			t.Errorf("%s: got %v, told %q, want %q", what, err, *news, want)
		}
		*news = nil
	}
	must("the first list", s.Replace([]any{web, db}, "1"), "db web")
	must("another version", s.Update(newer), "db web-of-later")
	must("one more", s.Add(podNamed("more", "3")), "db more web-of-later")
	must("one less", s.Delete(db), "more web-of-later")
	must("one whose end was missed", s.Delete(cache.DeletedFinalStateUnknown{Key: "web", Obj: newer}), "more")
	must("something that is none", s.Delete(&v1.Node{}))
	must("an empty list", s.Replace(nil, "2"), "")
	must("nothing", s.Resync())
	for what, err := range map[string]error{"Add": s.Add(&v1.Node{}), "Update": s.Update(&v1.Node{}), "Replace": s.Replace([]any{&v1.Node{}}, "3")} {
		if err == nil || err.Error() != "the apiserver sent a *v1.Node" {
			t.Errorf("%s of an object of another kind: got %v", what, err)
		}
	}
	must("an object of another kind", nil)
}

// Pods stay what they were while the apiserver does not respond.
func TestWhyTheApiserverDoesNotRespondIsToldOnce(t *testing.T) {
	s, news := telling()
	must := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(*news, want) {
			t.Errorf("%s: told %q, want %q", what, *news, want)
		}
		*news = nil
	}
	refused := func(query string) error {
		return fmt.Errorf("list: %w", &url.Error{Op: "Get", URL: "https://a/pods?timeout=" + query, Err: errors.New("refused")})
	}
	s.handleResult(nil)
	must("nothing has failed")
	s.handleResult(refused("1"))
	must("it fails", "error: refused")
	s.handleResult(refused("2"))
	must("it fails in the same way")
	s.handleResult(errors.New("broken"))
	must("it fails in another way", "error: broken")
	s.handleResult(nil)
	must("it responds, before there is a list")
	if err := s.Replace([]any{podNamed("web", "1")}, "1"); err != nil {
		t.Fatal(err)
	}
	must("the list", "web")
	s.handleResult(errors.New("broken"))
	s.handleResult(nil)
	must("it has failed, and responds", "error: broken", "web")
	s.handleResult(nil)
	must("it responds still")
	s.handleResult(errors.New(""))
	s.handleResult(nil)
	must("it has failed without a word, and responds", "error: ", "web")
}

// The end of podd is not the apiserver's failure.
func TestTheEndOfARequestsContextIsNoNews(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &lister{onResult: func(err error) { t.Errorf("told %v", err) }, ListWatch: &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, ctx.Err() },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, ctx.Err() },
	}}
	if _, err := l.ListWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("list: got %v", err)
	}
	if _, err := l.WatchWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("watch: got %v", err)
	}
}

// What pods name by their own, the authorizer learns a moment later; the others have no such
// moment.
func TestWhenARefusalIsTold(t *testing.T) {
	f := kubeconfigOf(t)
	for name, c := range map[string]struct {
		follow func(*Client, context.Context, func(error))
		want   time.Duration
	}{
		"a ConfigMap": {func(c *Client, ctx context.Context, told func(error)) {
			c.FollowConfigMap(ctx, "space", "words", func(_ []*v1.ConfigMap, err error) { told(err) })
		}, 1550 * time.Millisecond},
		"a Secret": {func(c *Client, ctx context.Context, told func(error)) {
			c.FollowSecret(ctx, "space", "words", func(_ []*v1.Secret, err error) { told(err) })
		}, 1550 * time.Millisecond},
		"a Node": {func(c *Client, ctx context.Context, told func(error)) {
			c.FollowNode(ctx, "n", func(_ []*v1.Node, err error) { told(err) })
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				c.follow(refusing(newWire(), http.StatusForbidden, metav1.StatusReasonForbidden).client(t, f), ctx, func(err error) {
					if ctx.Err() == nil && (!apierrors.IsForbidden(err) || time.Since(began) != c.want) {
						t.Errorf("told %v after %v, want the refusal after %v", err, time.Since(began), c.want)
					}
					cancel()
				})
				if ctx.Err() == nil {
					t.Error("it was not told")
				}
			})
		})
	}
}

func TestWhatIsAskedOfTrustBundles(t *testing.T) {
	f := kubeconfigOf(t)
	for name, c := range map[string]struct{ name, signer, want string }{
		"one":             {"roots", "", "metadata.name=roots"},
		"all of a signer": {"", "example.com/s", "spec.signerName=example.com%2Fs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := refusing(newWire(), http.StatusNotFound, metav1.StatusReasonNotFound)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var told error
				w.client(t, f).FollowTrustBundles(ctx, c.name, c.signer, func(_ []*certificatesv1.ClusterTrustBundle, err error) {
					if told == nil {
						told = err
					}
					cancel()
				})
				if !apierrors.IsNotFound(told) || !strings.Contains(told.Error(), "the apiserver serves no clustertrustbundles (feature gate ClusterTrustBundle, --runtime-config)") {
					t.Errorf("an apiserver without them: got %v", told)
				}
				if len(w.got) < 2 || !strings.Contains(w.got[0], "/v1/clustertrustbundles?") || !strings.Contains(w.got[len(w.got)-1], "/v1beta1/clustertrustbundles?") {
					t.Errorf("asked %q, want v1, then v1beta1", w.got)
				}
				for _, got := range w.got {
					if !strings.Contains(got, "fieldSelector="+c.want+"&") {
						t.Errorf("asked %q, want %s", got, c.want)
					}
				}
			})
		})
	}
}

// serving is an apiserver that serves trust bundles in one version alone. A watch of them
// shows one bundle, and ends with end.
type serving struct {
	mu      sync.Mutex
	version string
	end     chan struct{}
	asked   []string // the versions, in turn
}

// upgrade serves another version, and ends the watches.
func (s *serving) upgrade(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	close(s.end)
	s.end = make(chan struct{})
}

func (s *serving) RoundTrip(q *http.Request) (*http.Response, error) {
	version := strings.Split(q.URL.Path, "/")[3]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, version)
	end := s.end
	status, body := http.StatusNotFound, io.Reader(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"no such resource","code":404}`))
	if version == s.version {
		bundle := func(event, annotations string) string {
			return fmt.Sprintf(`{"type":%q,"object":{"kind":"ClusterTrustBundle","apiVersion":"certificates.k8s.io/%s","metadata":{"name":"roots","resourceVersion":"1","annotations":{%s}},"spec":{"signerName":"example.com/s","trustBundle":"PEM"}}}`, event, version, annotations)
		}
		r, w := io.Pipe()
		status, body = http.StatusOK, r
		go func() {
			_, _ = io.WriteString(w, bundle("ADDED", "")+bundle("BOOKMARK", `"k8s.io/initial-events-end":"true"`))
			select {
			case <-end:
			case <-q.Context().Done():
			}
			_ = w.Close()
		}()
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: q, Body: io.NopCloser(body)}, nil
}

// TestTrustBundlesAreFollowedInTheVersionThatIsServed: v1 since Kubernetes 1.37, v1beta1
// before, and v1 again once the apiserver was upgraded.
func TestTrustBundlesAreFollowedInTheVersionThatIsServed(t *testing.T) {
	f := kubeconfigOf(t)
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"v1":             {"v1", "v1", []string{"v1", "v1"}},
		"v1beta1":        {"v1beta1", "v1beta1", []string{"v1", "v1beta1", "v1beta1"}},
		"after upgrades": {"v1beta1", "v1", []string{"v1", "v1beta1", "v1beta1", "v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &serving{version: c.before, end: make(chan struct{})}
				client, err := Connect(Config{Kubeconfig: f.path("kubeconfig"), UserAgent: "podd/1", WrapTransport: func(http.RoundTripper) http.RoundTripper { return s }})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var told []string
				done := make(chan struct{})
				go func() {
					defer close(done)
					client.FollowTrustBundles(ctx, "roots", "", func(all []*certificatesv1.ClusterTrustBundle, err error) {
						for _, b := range all {
							told = append(told, b.Name+" "+b.Spec.SignerName+" "+b.Spec.TrustBundle)
						}
						if err != nil {
							told = append(told, err.Error())
						}
					})
				}()
				time.Sleep(time.Minute)
				s.upgrade(c.after)
				time.Sleep(time.Minute)
				cancel()
				<-done
				asked := slices.Compact(slices.Clone(s.asked))
				if want := slices.Compact(slices.Clone(c.want)); !slices.Equal(asked, want) {
					t.Errorf("asked %q, want %q", s.asked, want)
				}
				for _, got := range told {
					if got != "roots example.com/s PEM" {
						t.Errorf("told %q", got)
					}
				}
				if len(told) == 0 {
					t.Error("nothing was told")
				}
			})
		})
	}
}
