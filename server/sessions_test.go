package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wake"
)

// sessions is a runtime whose sessions are served by an HTTP server: it tells what it was
// asked for, and echoes.
type sessions struct {
	fakeRuntime
	asked  chan string
	target *url.URL
	fails  error
}

func (s *sessions) say(format string, args ...any) (*url.URL, error) {
	s.asked <- fmt.Sprintf(format, args...)
	return s.target, s.fails
}

func (s *sessions) Exec(_ context.Context, id string, command []string, of Streams) (*url.URL, error) {
	return s.say("exec %s %q %+v", id, command, of)
}

func (s *sessions) Attach(_ context.Context, id string, of Streams) (*url.URL, error) {
	return s.say("attach %s %+v", id, of)
}

func (s *sessions) PortForward(_ context.Context, p *v1.Pod, ports []int32) (*url.URL, error) {
	return s.say("forward %s %v", p.Name, ports)
}

func (s *sessions) Run(_ context.Context, id string, command []string) ([]byte, error) {
	_, err := s.say("run %s %q", id, command)
	return []byte("done\n"), err
}

// RunningContainerID goes by the pod's status, and knows a container "new" that is not in it yet.
func (f *fakeRuntime) RunningContainerID(_ context.Context, p *v1.Pod, container string) (string, error) {
	if container == "new" {
		return "now", nil
	}
	if c := pod.ContainerStatus(&p.Status, container); c != nil && c.State.Running != nil {
		return pod.RuntimeID(c.ContainerID), nil
	}
	return "", pod.ErrNotFound
}

func (f *fakeRuntime) Exec(context.Context, string, []string, Streams) (*url.URL, error) {
	return nil, f.result
}

func (f *fakeRuntime) Attach(context.Context, string, Streams) (*url.URL, error) {
	return nil, f.result
}

func (f *fakeRuntime) PortForward(context.Context, *v1.Pod, []int32) (*url.URL, error) {
	return nil, f.result
}

func (f *fakeRuntime) Run(context.Context, string, []string) ([]byte, error) { return nil, f.result }

// echo takes an upgrade and sends back what it gets, until the other end closes.
func echo(ended chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		if r.Header.Get("Authorization") != "" || r.URL.Path != "/session/token" || r.URL.RawQuery != "" {
			http.Error(w, fmt.Sprintf("got %s with %v", r.URL, r.Header), http.StatusTeapot)
			return
		}
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		_ = both.Flush()
		_, _ = io.Copy(conn, both)
	})
}

func sessionServer(t *testing.T) (api *httptest.Server, s *Server, rt *sessions, ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{})
	backend := httptest.NewServer(echo(ended))
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL + "/session/token")
	if err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid"}}
	p.Spec.Containers = []v1.Container{{Name: "main"}, {Name: "over"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "main", ContainerID: "containerd://abc", State: runsNow()}, {Name: "over", ContainerID: "containerd://def", State: exitedAs("containerd://def")},
	}
	rt = &sessions{asked: make(chan string, 8), target: target}
	s = New(Config{Pods: onePod{p}})
	s.Attach(rt)
	api = httptest.NewServer(s.handler(api10250(s)))
	t.Cleanup(api.Close)
	return api, s, rt, ended
}

// api10250 is that of sessions, without its guard.
func api10250(s *Server) api { return api{name: "kubelet", groups: []group{s.sessionsGroup()}} }

// upgrade opens a session.
func upgrade(t *testing.T, api *httptest.Server, method, path string) (net.Conn, *http.Response, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", api.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nAuthorization: Bearer secret\r\n\r\n", method, path); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return conn, response, in
}

func TestASessionIsPassedToTheRuntimeByteByByte(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/exec/shop/web/main?command=sh&command=-c&command=a%20b&input=1&output=1&error=1", `exec abc ["sh" "-c" "a b"] {Stdin:true Stdout:true Stderr:true TTY:false}`},
		{"GET", "/exec/shop/web/uid/main?command=sh&input=1&output=1&error=1&tty=1", `exec abc ["sh"] {Stdin:true Stdout:true Stderr:false TTY:true}`},
		{"POST", "/attach/shop/web/main?output=1", `attach abc {Stdin:false Stdout:true Stderr:false TTY:false}`},
		{"POST", "/portForward/shop/web", `forward web []`},
		{"GET", "/portForward/shop/web/uid?port=80&port=443", `forward web [80 443]`},
	} {
		api, s, rt, ended := sessionServer(t)
		conn, response, in := upgrade(t, api, c.method, c.path)
		if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "SPDY/3.1" {
			text, _ := io.ReadAll(response.Body)
			t.Fatalf("%s: got %s %q", c.path, response.Status, text)
		}
		if got := <-rt.asked; got != c.want {
			t.Errorf("%s: asked for %s, want %s", c.path, got, c.want)
		}
		const text = "\x80\x03\x00\x01 any bytes"
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != text {
			t.Errorf("%s: got %q, %v back, want %q", c.path, got, err, text)
		}
		if n := len(s.sessions); n != 1 {
			t.Errorf("%d sessions are counted, want 1", n)
		}
		_ = conn.Close()
		<-ended
	}
}

func TestASessionEndsWithPodd(t *testing.T) {
	api, s, _, ended := sessionServer(t)
	_, _, in := upgrade(t, api, "POST", "/attach/shop/web/main?output=1")
	close(s.stopping)
	<-ended
	if _, err := in.ReadByte(); err == nil {
		t.Error("the client's connection is still open")
	}
}

// endingPod is a pod that is removed when gone is closed.
type endingPod struct {
	onePod
	gone chan struct{}
}

func (e endingPod) Pods() []*v1.Pod {
	select {
	case <-e.gone:
		return nil
	default:
		return e.onePod.Pods()
	}
}

func TestForwardedPortsEndWithTheirPodAndNotBefore(t *testing.T) {
	api, s, rt, ended := sessionServer(t)
	one, ok := s.config.Pods.(onePod)
	if !ok {
		t.Fatal("the server has other pods than its test")
	}
	gone, changed := make(chan struct{}), wake.New()
	s.config.Pods = endingPod{one, gone}
	s.config.Changes = []func() (<-chan struct{}, func()){func() (<-chan struct{}, func()) { return changed, func() {} }}
	conn, response, in := upgrade(t, api, "POST", "/portForward/shop/web")
	if <-rt.asked; response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response.Status)
	}
	changed <- struct{}{} // something else
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if got, err := in.ReadByte(); err != nil || got != 'x' {
		t.Fatalf("got %q, %v", got, err)
	}
	close(gone)
	changed <- struct{}{}
	<-ended
	if _, err := in.ReadByte(); err == nil {
		t.Error("the client's connection is still open")
	}
}

func TestSessionsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		method, path string
		fails        error
		code         int
		says         string
	}{
		{"POST", "/exec/shop/web/main?command=sh", nil, 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"POST", "/exec/shop/web/main?output=1", nil, 400, "give a command"},
		{"POST", "/exec/shop/web/main?output=1&command=" + strings.Repeat("x", 129<<10), nil, 400, "at most 128 KiB"},
		{"POST", "/exec/shop/nobody/main?output=1&command=sh", nil, 404, "pod does not exist"},
		{"POST", "/exec/shop/late/main?output=1&command=sh", nil, 503, "podd has just started"},
		{"POST", "/exec/shop/web/other-uid/main?output=1&command=sh", nil, 404, "pod does not exist"},
		{"POST", "/exec/shop/web/nothing?output=1&command=sh", nil, 404, `container not found ("nothing")`},
		{"POST", "/exec/shop/web/over?output=1&command=sh", nil, 404, `container not found ("over")`},
		{"PUT", "/exec/shop/web/main?output=1&command=sh", nil, 405, "GET and POST"},
		{"POST", "/exec/shop/web/main?output=1&command=sh", fmt.Errorf("no such container: %w", pod.ErrNotFound), 404, "no such container"},
		{"POST", "/attach/shop/web/main?output=1", fmt.Errorf("it failed"), 500, "it failed"},
		{"POST", "/portForward/shop/web?port=70000", nil, 400, `port "70000" is not a port`},
		{"GET", "/run/shop/web/main?cmd=ls", nil, 405, "only POST"},
		{"POST", "/run/shop/web/main", nil, 400, "give the command in cmd"},
		{"POST", "/run/shop/web/main?cmd=ls", fmt.Errorf("command terminated with exit code 1"), 500, "exit code 1"},
	} {
		_, s, rt, _ := sessionServer(t)
		rt.fails = c.fails
		s.config.Expects = func(namespace, name string) bool { return namespace+"/"+name == "shop/late" }
		w := httptest.NewRecorder()
		s.handler(api10250(s)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %.60s: got %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.code, c.says)
		}
	}
}

func TestACommandIsRunAndAnsweredAsText(t *testing.T) {
	_, s, rt, _ := sessionServer(t)
	w := httptest.NewRecorder()
	s.handler(api10250(s)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/run/shop/web/main?cmd=ls+-l", nil))
	if got := <-rt.asked; w.Code != 200 || w.Body.String() != "done\n" || got != `run abc ["ls" "-l"]` {
		t.Errorf("got %d %q, asked %s", w.Code, w.Body, got)
	}
}

func TestTheSessionsAtATimeAreBounded(t *testing.T) {
	_, s, _, _ := sessionServer(t)
	for range maxSessions {
		s.sessions <- struct{}{}
	}
	w := httptest.NewRecorder()
	s.handler(api10250(s)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/attach/shop/web/main?output=1", nil))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "256 sessions are open") {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}
