package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// node is what a server serves in these tests.
type node struct{ pods atomic.Pointer[[]*v1.Pod] }

func (n *node) Pods() []*v1.Pod         { return *n.pods.Load() }
func (n *node) Origin(u pod.UID) string { return "/etc/podd/manifests/" + string(u) + ".yaml" }
func (n *node) set(pods ...*v1.Pod)     { n.pods.Store(&pods) }

func aPod(name string, state v1.ContainerState) *v1.Pod {
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-" + pod.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", Image: "localhost/podd/web:1", State: state}}},
	}
}

var (
	runs  = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waits = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
)

// start runs a server on a socket and two free ports until the test ends.
func start(t *testing.T, change func(*Config)) (*Server, *node) {
	t.Helper()
	n := &node{}
	n.set(aPod("a", runs), aPod("b", waits))
	reg := prometheus.NewRegistry()
	RegisterProcess(reg, "node-1", Version{Version: "v0.1.0", Kubernetes: "v1.2.3", GoVersion: "go1.26", Platform: "linux/amd64"})
	c := Config{
		Socket:          filepath.Join(t.TempDir(), "run", "podd.sock"),
		ReadOnlyAddress: "127.0.0.1:0", HealthzAddress: "127.0.0.1:0",
		Pods: n, Gather: reg, GatherProbes: reg, Metrics: reg,
		Objects:  func() []ObjectInfo { return []ObjectInfo{{Kind: "Secret", Name: "keys", Keys: []string{"tls.key"}}} },
		Problems: func() []pod.Problem { return []pod.Problem{{Origin: "/x.yaml", Line: 3, Message: "is wrong"}} },
		Events: func(ns, name string) []*v1.Event {
			return []*v1.Event{{Reason: "Started", Message: ns + "/" + name}}
		},
		Configz: func() any { return map[string]any{"kubeletconfig": map[string]string{"staticPodPath": "/x"}} },
	}
	if change != nil {
		change(&c)
	}
	s := New(c)
	s.Attach(&fakeRuntime{})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: got %v, want nil", err)
		}
		if _, err := os.Lstat(c.Socket); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return s, n
}

func get(t *testing.T, s *Server, listener, path string) (int, string) {
	t.Helper()
	resp, err := clientOf(s, listener).Get("http://localhost" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func clientOf(s *Server, listener string) *http.Client {
	network, address := "tcp", s.Address(listener).String()
	if listener == "socket" {
		network, address = "unix", s.config.Socket
	}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
}

// TestWhoAnswersWhat: what each listener serves, and what it must not.
func TestWhoAnswersWhat(t *testing.T) {
	s, _ := start(t, nil)
	tests := []struct {
		path                      string
		socket, readonly, healthz int
	}{
		{"/healthz", 200, 200, 200}, {"/healthz/ping", 200, 200, 200}, {"/livez", 200, 200, 200}, {"/readyz?verbose", 200, 200, 200},
		{"/healthz/nothing", 404, 404, 404},
		{"/pods", 200, 200, 404}, {"/runningpods/", 200, 200, 404}, {"/metrics", 200, 200, 404}, {"/metrics/probes", 200, 200, 404}, {"/metrics/resource", 200, 200, 404}, {"/metrics/cadvisor", 200, 200, 404}, {"/configz", 200, 404, 404},
		{"/stats/summary", 200, 200, 404}, {"/stats/", 404, 404, 404},
		{"/podd/v1/pods", 200, 404, 404}, {"/podd/v1/problems", 200, 404, 404}, {"/podd/v1/events", 200, 404, 404},
		{"/podd/v1/objects", 200, 404, 404},
		{"/podd/v1/volumes?uid=uid-a", 200, 404, 404}, {"/podd/v1/volumes?uid=x", 404, 404, 404},
		{"/podd/v1/inspect?uid=uid-a", 200, 404, 404}, {"/podd/v1/inspect?uid=x", 404, 404, 404},
		{"/podd/v1/version", 200, 404, 404}, {"/debug/pprof/", 200, 404, 404}, {"/", 404, 404, 404},
	}
	for _, tt := range tests {
		for listener, want := range map[string]int{"socket": tt.socket, "readonly": tt.readonly, "healthz": tt.healthz} {
			if got, body := get(t, s, listener, tt.path); got != want {
				t.Errorf("%s on %s: got %d %q, want %d", tt.path, listener, got, body, want)
			}
		}
	}
}

func TestPodsHaveTheKubeletsShape(t *testing.T) {
	s, _ := start(t, nil)
	_, body := get(t, s, "readonly", "/pods")
	var list v1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" || len(list.Items) != 2 || list.Items[0].Kind != "" || list.Items[0].Name != "a" {
		t.Errorf("got kind %q, %d items, the first of kind %q", list.Kind, len(list.Items), list.Items[0].Kind)
	}
	if strings.Count(body, "\n") > 1 {
		t.Error("indented without being asked")
	}
	if _, pretty := get(t, s, "readonly", "/pods?pretty"); strings.Count(pretty, "\n") < 10 {
		t.Errorf("?pretty: got %q", pretty)
	}
	_, body = get(t, s, "readonly", "/runningpods/")
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "a" || len(list.Items[0].Spec.Containers) != 1 || list.Items[0].Spec.Containers[0].Image != "localhost/podd/web:1" {
		t.Errorf("running pods: got %s", body)
	}
}

func TestLocalAPI(t *testing.T) {
	s, _ := start(t, nil)
	var l Listing
	_, body := get(t, s, "socket", "/podd/v1/pods")
	if err := json.Unmarshal([]byte(body), &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Pods) != 2 || l.Pods[0].Origin != "/etc/podd/manifests/uid-a.yaml" || len(l.Problems) != 1 || l.Problems[0].Line != 3 {
		t.Errorf("got %s", body)
	}
	if _, body := get(t, s, "socket", "/podd/v1/events?namespace=default&name=web"); !strings.Contains(body, "default/web") || !strings.Contains(body, "EventList") {
		t.Errorf("events: got %s", body)
	}
	if _, body := get(t, s, "socket", "/configz"); !strings.Contains(body, `{"kubeletconfig":{"staticPodPath":`) {
		t.Errorf("configz: got %s", body)
	}
}

func TestOnlyReading(t *testing.T) {
	s, _ := start(t, nil)
	for request, want := range map[string]int{
		"POST /pods": 405, "PUT /pods": 405, "DELETE /pods": 405, "GET /pods": 413,
		"HEAD /pods": 405, "HEAD /runningpods/": 405, "HEAD /stats/summary": 405,
		"HEAD /healthz": 200, "HEAD /metrics": 200, "HEAD /metrics/slis": 200, "DELETE /metrics/slis": 405,
	} {
		method, path, _ := strings.Cut(request, " ")
		var body io.Reader
		if method == "GET" {
			body = strings.NewReader("x")
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := clientOf(s, "readonly").Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: got %d, want %d", request, resp.StatusCode, want)
		}
	}
}

func TestMetricsNameTheNodeAndTheBuild(t *testing.T) {
	s, _ := start(t, nil)
	get(t, s, "readonly", "/pods")
	get(t, s, "readonly", "/what/ever")
	_, body := get(t, s, "readonly", "/metrics")
	for _, want := range []string{
		`kubelet_node_name{node="node-1"} 1`, `podd_build_info{`, `version="v0.1.0"`, `kubernetes_build_info{`, `minor="2"`,
		"go_goroutines ", "process_resident_memory_bytes ",
		`kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readonly"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readonly"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestSocketIsForItsOwnerAndReplacedWhenStale(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "podd.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	s, _ := start(t, func(c *Config) { c.Socket = path })
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
	if code, _ := get(t, s, "socket", "/healthz"); code != 200 {
		t.Errorf("got %d", code)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".s*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSecondPoddIsRejected(t *testing.T) {
	first, _ := start(t, nil)
	second := New(Config{Socket: first.config.Socket, Pods: &node{}})
	err := second.Listen()
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("another podd (process %d) serves", os.Getpid())) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("got %v", err)
	}
	if code, _ := get(t, first, "socket", "/healthz"); code != 200 {
		t.Errorf("the first one suffered: got %d", code)
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	socket := filepath.Join(t.TempDir(), "podd.sock")
	s := New(Config{Socket: socket, ReadOnlyAddress: taken.Addr().String(), HealthzAddress: "203.0.113.1:10248", Pods: &node{}})
	err = s.Listen()
	for _, want := range []string{"readOnlyPort", "another process has this port", "ss -ltnp", "healthzPort", "no such address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	again := New(Config{Socket: socket, Pods: &node{}})
	if err := again.Listen(); err != nil {
		t.Errorf("after a refusal the socket is still held: %v", err)
	}
	again.release()
}

func TestFileInTheSocketsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "podd.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(Config{Socket: path, Pods: &node{}}).Listen(); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file is gone: %q, %v", b, err)
	}
}

func TestHealth(t *testing.T) {
	bad := errors.New("nobody answers")
	h := newHealth([]Check{
		{Name: "syncloop", Level: Live, Func: func(context.Context) error { return nil }},
		{Name: "runtime", Level: Healthy, Func: func(context.Context) error { return bad }},
		{Name: "network", Level: Ready, Func: func(context.Context) error { return bad }},
		{Name: "version", Level: Ready, Func: func(context.Context) error { return nil }, Note: func() string { return "of tomorrow" }},
	})
	live, healthy, ready := h.endpoint("livez", Live), h.endpoint("healthz", Healthy), h.endpoint("readyz", Ready)
	tests := []struct {
		handler http.Handler
		path    string
		code    int
		body    string
	}{
		{live, "/livez", 200, "ok"},
		{live, "/livez?verbose", 200, "[+]ping ok\n[+]syncloop ok\nlivez check passed\n"},
		{healthy, "/healthz", 500, "[+]ping ok\n[+]syncloop ok\n[-]runtime failed: nobody answers\nhealthz check failed\n"},
		{healthy, "/healthz?exclude=runtime", 200, "ok"},
		{ready, "/readyz", 500, "[+]ping ok\n[+]syncloop ok\n[-]runtime failed: nobody answers\n[-]network failed: nobody answers\n[+]version ok: of tomorrow\nreadyz check failed\n"},
		{ready, "/readyz?exclude=network&exclude=runtime", 200, "ok"},
		{ready, "/readyz?exclude=network&exclude=runtime&verbose", 200, "[+]ping ok\n[+]syncloop ok\n[+]version ok: of tomorrow\nreadyz check passed\n"},
		{ready, "/readyz/syncloop", 200, "ok"},
		{live, "/livez/network", 500, "[-]network failed: nobody answers\nlivez check failed\n"},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		tt.handler.ServeHTTP(w, httptest.NewRequest("GET", tt.path, nil))
		if w.Code != tt.code || w.Body.String() != tt.body {
			t.Errorf("%s: got %d %q, want %d %q", tt.path, w.Code, w.Body, tt.code, tt.body)
		}
	}
}

func TestHealthChecksAreCounted(t *testing.T) {
	var bad error
	s, _ := start(t, func(c *Config) {
		c.Health = []Check{{Name: "runtime", Level: Healthy, Func: func(context.Context) error { return bad }}}
	})
	get(t, s, "healthz", "/healthz")
	get(t, s, "healthz", "/healthz/runtime") // alone: not counted
	bad = errors.New("nobody answers")
	get(t, s, "readonly", "/healthz")
	get(t, s, "socket", "/readyz?exclude=ping")
	for _, listener := range []string{"readonly", "socket"} {
		_, body := get(t, s, listener, "/metrics/slis")
		var series []string
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "kubernetes_") {
				series = append(series, strings.TrimSpace(line))
			}
		}
		if want := []string{
			`kubernetes_healthcheck{name="ping",type="healthz"} 1`,
			`kubernetes_healthcheck{name="runtime",type="healthz"} 0`,
			`kubernetes_healthcheck{name="runtime",type="readyz"} 0`,
			`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`,
			`kubernetes_healthchecks_total{name="runtime",status="error",type="healthz"} 1`,
			`kubernetes_healthchecks_total{name="runtime",status="error",type="readyz"} 1`,
			`kubernetes_healthchecks_total{name="runtime",status="success",type="healthz"} 1`,
		}; !slices.Equal(series, want) || !strings.Contains(body, "\nprocess_start_time_seconds ") {
			t.Errorf("%s: got %s", listener, body)
		}
	}
	if code, _ := get(t, s, "healthz", "/metrics/slis"); code != 404 {
		t.Errorf("on the healthz port: got %d, want 404", code)
	}
}

// TestACheckSaysItselfWhatItWaitedFor: its sentence arrives before the answer
// is given up.
func TestACheckSaysItselfWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth([]Check{{Name: "runtime", Level: Healthy, Func: func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("the runtime takes connections but gives no answer")
		}}})
		w := httptest.NewRecorder()
		h.endpoint("healthz", Healthy).ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		if got := w.Body.String(); w.Code != 500 || !strings.Contains(got, "takes connections") {
			t.Errorf("got %d %q, want the check's own sentence", w.Code, got)
		}
	})
}

// TestHangingCheck: a check that ignores its context fails after its time, is
// run once however many ask, and does not hold up the others.
func TestHangingCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		release := make(chan struct{})
		h := newHealth([]Check{{Name: "runtime", Func: func(context.Context) error {
			runs.Add(1)
			<-release
			return nil
		}}})
		ready := h.endpoint("readyz", Ready)
		ask := func() (int, string) {
			w := httptest.NewRecorder()
			ready.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
			return w.Code, w.Body.String()
		}
		began := time.Now()
		for range 5 {
			if code, body := ask(); code != 500 || !strings.Contains(body, "[-]runtime failed: no answer within 2s") || !strings.Contains(body, "[+]ping ok") {
				t.Errorf("got %d %q", code, body)
			}
		}
		if took := time.Since(began); took != 10*time.Second || runs.Load() != 1 {
			t.Errorf("5 questions took %s and %d runs, want 10s and 1", took, runs.Load())
		}
		close(release)
		synctest.Wait()
		if code, body := ask(); code != 200 || runs.Load() != 2 {
			t.Errorf("when it answers again: got %d %q after %d runs", code, body, runs.Load())
		}
	})
}

func TestWatchFollowsChanges(t *testing.T) {
	changed := wake.New()
	stopped := make(chan struct{})
	s, n := start(t, func(c *Config) {
		c.Changes = []func() (<-chan struct{}, func()){func() (<-chan struct{}, func()) { return changed, func() { close(stopped) } }}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://podd/podd/v1/pods?watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := clientOf(s, "socket").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	next := func() int {
		var l Listing
		if !lines.Scan() {
			t.Fatal("the stream ended: ", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		return len(l.Pods)
	}
	if got := next(); got != 2 {
		t.Errorf("at first: got %d pods, want 2", got)
	}
	n.set(aPod("a", runs))
	changed <- struct{}{}
	if got := next(); got != 1 {
		t.Errorf("after a change: got %d pods, want 1", got)
	}
	stop()
	select {
	case <-stopped:
	case <-time.After(5 * time.Second):
		t.Error("the subscription of a client that went goes on")
	}
}

func TestSlowClientIsCutOff(t *testing.T) {
	s, _ := start(t, nil)
	c, err := net.Dial("tcp", s.Address("healthz").String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	big := strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 200)
	_, _ = fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n%s\r\n", big) // the server may hang up meanwhile
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("200 KB of headers: got %q, %v; want 431", line, err)
	}
}
