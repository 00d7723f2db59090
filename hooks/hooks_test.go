package hooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podd/internal/pod"
	"podd/internal/versions"
)

// runtime answers commands and notes events.
type runtime struct {
	exec   func(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error)
	events []string
}

func (r *runtime) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
	return r.exec(ctx, id, cmd, timeout)
}

func (r *runtime) Event(p *v1.Pod, eventType, reason, message string) {
	r.events = append(r.events, fmt.Sprint(p.Name, " ", eventType, " ", reason, ": ", message))
}

func newRunner(r *runtime) *Runner { return New(Config{Execer: r, Events: r}) }

func request(h v1.LifecycleHandler) pod.HookRequest {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "shop", "default", "u1"
	return pod.HookRequest{Pod: p, Container: &v1.Container{Name: "web"}, ContainerID: "c1", Handler: &h, PodIP: "127.0.0.1"}
}

func get(server, path string) v1.LifecycleHandler {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(server, "http://"), "https://"))
	n, _ := strconv.Atoi(port)
	return v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(n))}}
}

func expectError(t *testing.T, name string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want && (want == "" || !strings.Contains(got, want)) {
		t.Errorf("%s: got error %q, want %q", name, got, want)
	}
}

func TestExec(t *testing.T) {
	var ran string
	var result pod.ExecResult
	var err error
	rt := &runtime{exec: func(_ context.Context, id string, cmd []string, timeout time.Duration) (pod.ExecResult, error) {
		ran = fmt.Sprint(id, " ", strings.Join(cmd, ","), " ", timeout.Round(time.Second))
		return result, err
	}}
	r, req := newRunner(rt), request(v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "exit $(A)"}}})
	expectError(t, "exit code 0", r.Run(t.Context(), req), "")
	if want := "c1 sh,-c,exit $(A) 0s"; ran != want {
		t.Errorf("got %q, want %q: nothing expanded, no timeout", ran, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	expectError(t, "with a deadline", r.Run(ctx, req), "")
	if want := "c1 sh,-c,exit $(A) 30s"; ran != want {
		t.Errorf("got %q, want %q", ran, want)
	}
	result = pod.ExecResult{ExitCode: 7, Output: []byte("no \"x\"")}
	expectError(t, "exit code 7", r.Run(t.Context(), req),
		`Exec lifecycle hook ([sh -c exit $(A)]) for Container "web" in Pod "shop_default(u1)" failed - error: `+
			`command 'sh -c exit $(A)' exited with 7: no "x", message: "no \"x\""`)
	result, err = pod.ExecResult{}, errors.New("no such command")
	expectError(t, "not run", r.Run(t.Context(), req), `failed - error: no such command, message: ""`)
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(&runtime{})
		req := request(v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3600}})
		began := time.Now()
		expectError(t, "whole", r.Run(t.Context(), req), "")
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %v, want an hour", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		expectError(t, "cut short", r.Run(ctx, req), `Sleep lifecycle hook (3600) for Container "web" in Pod "shop_default(u1)" failed - error: `+
			`container terminated before sleep hook finished`)
		if got := testutil.ToFloat64(r.metrics.sleepTerminatedEarly); got != 1 {
			t.Errorf("got %v sleeps cut short, want 1", got)
		}
		req.Handler.Sleep.Seconds = 9999999999 // more than a duration holds
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		expectError(t, "very long", r.Run(ctx, req), "terminated before sleep hook finished")
		req.Handler.Sleep.Seconds = 0
		expectError(t, "none", r.Run(t.Context(), req), "")
	})
}

func TestHTTPGet(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		switch r.URL.Path {
		case "/error":
			w.WriteHeader(http.StatusInternalServerError)
		case "/away":
			http.Redirect(w, r, "http://away.test/", http.StatusFound)
		}
	}))
	defer server.Close()
	r := newRunner(&runtime{})
	h := get(server.URL, "/stop?now=1")
	h.HTTPGet.HTTPHeaders = []v1.HTTPHeader{{Name: "X-Why", Value: "end"}, {Name: "Host", Value: "shop.test"}}
	expectError(t, "200", r.Run(t.Context(), request(h)), "")
	if got.URL.RequestURI() != "/stop?now=1" || got.Header.Get("X-Why") != "end" || got.Host != "shop.test" || got.UserAgent() != "kube-lifecycle/"+versions.KubernetesMinor {
		t.Errorf("got %s of %s with %v", got.RequestURI, got.Host, got.Header)
	}
	expectError(t, "500", r.Run(t.Context(), request(get(server.URL, "/error"))), "")
	expectError(t, "redirect", r.Run(t.Context(), request(get(server.URL, "/away"))), "")

	named := request(get(server.URL, "/x"))
	named.Container = &v1.Container{Name: "web", Ports: []v1.ContainerPort{{Name: "admin", ContainerPort: named.Handler.HTTPGet.Port.IntVal}}}
	named.Handler.HTTPGet.Port = intstr.FromString("admin")
	expectError(t, "named port", r.Run(t.Context(), named), "")
	named.Handler.HTTPGet.Port = intstr.FromString("nosuch")
	expectError(t, "no such port", r.Run(t.Context(), named),
		`HTTP lifecycle hook (/x) for Container "web" in Pod "shop_default(u1)" failed - error: container "web" has no port named "nosuch"`)
	refused := request(v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(1)}})
	expectError(t, "refused", r.Run(t.Context(), refused), "connection refused")
	refused.PodIP = ""
	expectError(t, "no address", r.Run(t.Context(), refused), "no IP address")
	refused.Handler.HTTPGet = get(server.URL, "/").HTTPGet
	refused.Handler.HTTPGet.Host = "localhost"
	expectError(t, "by host", r.Run(t.Context(), refused), "")
}

func TestHTTPSIsNotVerifiedAndFallsBackToHTTP(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer secure.Close()
	var auth string
	plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		auth = r.Header.Get("Authorization") + r.Header.Get("X-Kept")
	}))
	defer plain.Close()
	rt := &runtime{}
	r := newRunner(rt)
	h := get(secure.URL, "/")
	h.HTTPGet.Scheme = v1.URISchemeHTTPS
	expectError(t, "https", r.Run(t.Context(), request(h)), "")
	if len(rt.events) != 0 {
		t.Errorf("got events %v, want none", rt.events)
	}
	h = get(plain.URL, "/")
	h.HTTPGet.Scheme = v1.URISchemeHTTPS
	h.HTTPGet.HTTPHeaders = []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "X-Kept", Value: "kept"}}
	expectError(t, "fallback", r.Run(t.Context(), request(h)), "")
	if auth != "kept" {
		t.Errorf("the plain request had headers %q, want all but Authorization", auth)
	}
	want := "shop Warning LifecycleHTTPFallback: request to HTTPS lifecycle hook " + strings.TrimPrefix(plain.URL, "http://") +
		" got HTTP response, retry with HTTP succeeded"
	if len(rt.events) != 1 || rt.events[0] != want || testutil.ToFloat64(r.metrics.fallbacks) != 1 {
		t.Errorf("got events %q and %v fallbacks, want %q", rt.events, testutil.ToFloat64(r.metrics.fallbacks), want)
	}
}

// TestHandlersEndWithTheirContext: one that hangs, floods or drips ends in time.
func TestHandlersEndWithTheirContext(t *testing.T) {
	flood := strings.Repeat("x", 64<<10)
	var worked atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/drip", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	mux.HandleFunc("/flood", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(flood))
		}
	})
	mux.HandleFunc("/work", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		time.Sleep(100 * time.Millisecond)
		_, _ = w.Write([]byte("done"))
		worked.Store(true)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	r := newRunner(&runtime{})
	for path, c := range map[string]struct {
		limit time.Duration // what never ends by itself ends with it
		want  string
	}{
		"/hang":  {300 * time.Millisecond, "context deadline exceeded"},
		"/drip":  {2 * time.Second, ""},
		"/flood": {time.Minute, ""},
		"/work":  {time.Minute, ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.limit)
		expectError(t, path, r.Run(ctx, request(get(server.URL, path))), c.want)
		if path == "/work" && !worked.Load() {
			t.Errorf("%s: it did not wait for the body's end", path)
		}
		cancel()
	}
}

func TestAHandlerThatThereIsNot(t *testing.T) {
	req := request(v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}})
	expectError(t, "tcpSocket", newRunner(&runtime{}).Run(t.Context(), req), "Cannot run handler: invalid handler: &LifecycleHandler{Exec:nil,HTTPGet:nil,TCPSocket:&TCPSocketAction{")
}
