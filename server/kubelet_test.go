package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// kubeletOf is the kubelet's API of a server, without TLS and guard.
func kubeletOf(t *testing.T, change func(*Kubelet)) (h http.Handler, rt *fakeRuntime, s *Server) {
	t.Helper()
	n := &node{}
	p := aPod("a", runs)
	p.Status.ContainerStatuses[0].ContainerID = "containerd://c1"
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "idle"})
	n.set(p)
	k := Kubelet{Debugging: true, Profiling: true, DebugFlags: true, SystemLogs: true, LogDir: t.TempDir(), CheckpointDir: "/var/lib/podd/checkpoints"}
	if change != nil {
		change(&k)
	}
	open := func(next http.Handler) http.Handler { return next }
	s = New(Config{Socket: filepath.Join(t.TempDir(), "s"), KubeletAddress: "x", KubeletGuard: open, Kubelet: k, Pods: n, Version: Version{Kubernetes: "v1.2.3"}})
	rt = &fakeRuntime{}
	s.Attach(rt)
	for _, a := range s.apis() {
		if a.name == "kubelet" {
			return s.handler(a), rt, s
		}
	}
	t.Fatal("there is no kubelet's API")
	return nil, nil, nil
}

func asked(h http.Handler, method, path, body string, header ...string) (code int, answer string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, path, nil)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(deadlines{w}, r)
	return w.Code, w.Body.String()
}

// deadlines are set on a recorder, which has none.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetWriteDeadline(time.Time) error { return nil }
func (deadlines) SetReadDeadline(time.Time) error  { return nil }

func TestWhatIsSwitchedOffSaysSo(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Kubelet)
		codes  map[string]int
	}{
		{"as by default", nil, map[string]int{"/logs/": 200, "/debug/pprof/cmdline": 200, "/debug/flags/v": 406, "/flagz": 200, "/statusz": 200, "/pods": 200}},
		{"no debugging", func(k *Kubelet) { k.Debugging = false }, map[string]int{
			"/logs/": 405, "/logs/x": 405, "/debug/pprof/": 405, "/debug/pprof/cmdline": 405, "/debug/flags/v": 404, "/flagz": 404, "/statusz": 404, "/configz": 404,
			"/containerLogs/default/a/c": 405, "/exec/default/a/c": 405, "/attach/default/a/c": 405, "/portForward/default/a": 405, "/run/default/a/c": 405,
			"/pods": 200, "/healthz": 200, "/runningpods/": 405,
		}},
		{"no profiles", func(k *Kubelet) { k.Profiling = false }, map[string]int{"/debug/pprof/": 405, "/debug/pprof/heap": 405, "/logs/": 200}},
		{"no flags", func(k *Kubelet) { k.DebugFlags = false }, map[string]int{"/debug/flags/v": 405, "/logs/": 200}},
		{"no system logs", func(k *Kubelet) { k.SystemLogs, k.LogQuery = false, true }, map[string]int{"/logs/": 405, "/logs/syslog": 405, "/logs/?query=kubelet": 405}},
	} {
		h, _, _ := kubeletOf(t, c.change)
		for path, want := range c.codes {
			if code, body := asked(h, http.MethodGet, path, ""); code != want {
				t.Errorf("%s: %s: got %d %q, want %d", c.what, path, code, body, want)
			}
		}
	}
}

func TestVerbosityIsSetByPut(t *testing.T) {
	var set []int
	h, _, _ := kubeletOf(t, func(k *Kubelet) { k.SetVerbosity = func(v int) { set = append(set, v) } })
	for body, want := range map[string]int{"4": 200, "x": 400, "-1": 400, strings.Repeat("9", 40): 400} {
		if code, text := asked(h, http.MethodPut, "/debug/flags/v", body); code != want {
			t.Errorf("%q: got %d %q, want %d", body, code, text, want)
		}
	}
	if !slices.Equal(set, []int{4}) {
		t.Errorf("got %v", set)
	}
}

// logDir is a log directory with what a hostile pod may put there.
func logDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "syslog"), []byte("a line\n"), 0o600),
		os.Mkdir(filepath.Join(dir, "app"), 0o755),
		os.WriteFile(filepath.Join(dir, "app", "app.log"), []byte("of the app\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "plain.log"), []byte("plain\n"), 0o600),
		os.Symlink("syslog", filepath.Join(dir, "inside")),
		os.Symlink(filepath.Join(dir, "app", "app.log"), filepath.Join(dir, "within")),
		os.Symlink(filepath.Join(dir, "app"), filepath.Join(dir, "pods")),
		os.Symlink(dir+"-of-others", filepath.Join(dir, "beside")),
		os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "dangling")),
		os.Symlink("/etc/passwd", filepath.Join(dir, "absolute")),
		os.Symlink("../../../../../../etc", filepath.Join(dir, "up")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSystemLogsAreThoseOfTheLogDirectoryAlone(t *testing.T) {
	h, _, _ := kubeletOf(t, func(k *Kubelet) { k.LogDir = logDir(t) })
	for path, want := range map[string]string{
		"/logs/syslog": "200 a line", "/logs/app/app.log": "200 of the app", "/logs/inside": "200 a line", "/logs/": `<a href="app/">`, "/logs/app/": "app.log",
		"/logs": "301", "/logs/app": "301", "/logs/none": "404", "/logs/absolute": "403",
		"/logs/within": "200 of the app", "/logs/pods/app.log": "200 of the app", "/logs/pods/": "app.log", "/logs/beside": "403", "/logs/dangling": "40", "/logs/up/passwd": "403", "/logs/fifo": "403",
		"/logs/%2e%2e/%2e%2e/etc/passwd": "40", "/logs/..%2f..%2fetc%2fpasswd": "40", "/logs//etc/passwd": "",
		"/logs/syslog?query=x": "200 a line", // queries are off
	} {
		code, body := asked(h, http.MethodGet, path, "")
		if got := fmt.Sprint(code, " ", body); !strings.Contains(got, want) || strings.Contains(got, "root:") {
			t.Errorf("%s: got %.200q, want %q", path, got, want)
		}
	}
	for _, method := range []string{http.MethodDelete, http.MethodPost, http.MethodHead} {
		if code, _ := asked(h, method, "/logs/syslog", ""); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d", method, code)
		}
	}
}

// TestEndpointsThatOnlyGetServes: those where the kubelet of 1.37 allows nothing else.
func TestEndpointsThatOnlyGetServes(t *testing.T) {
	h, _, _ := kubeletOf(t, func(k *Kubelet) { k.LogDir, k.LogQuery = logDir(t), true })
	for _, path := range []string{"/pods", "/runningpods/", "/logs/", "/logs/syslog", "/logs/?query=kubelet", "/containerLogs/default/a/c", "/debug/pprof/cmdline"} {
		for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPut, http.MethodOptions} {
			w := httptest.NewRecorder()
			h.ServeHTTP(deadlines{w}, httptest.NewRequest(method, path, nil))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodGet {
				t.Errorf("%s %s: got %d, Allow %q, want 405 and GET", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/healthz", "/metrics/slis"} {
		if code, _ := asked(h, http.MethodHead, path, ""); code != http.StatusOK {
			t.Errorf("HEAD %s: got %d", path, code)
		}
	}
}

// journal puts a journalctl first in the path that shows its arguments, and has the unit
// web.service.
func journal(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --field ] && { echo other.service; echo web.service; exit 0; }\nfor a; do printf '[%s]' \"$a\"; done\necho; exit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestLogQueries(t *testing.T) {
	journal(t)
	h, _, _ := kubeletOf(t, func(k *Kubelet) { k.LogDir, k.LogQuery = logDir(t), true })
	const always = "[--utc][--no-pager][--output=short-precise]"
	for query, want := range map[string]string{
		"query=web":                    "200 " + always + "[--unit=web]",
		"query=web.service&query=none": "200 " + always + "[--unit=web.service]\n\nlog not found for none\n",
		"query=web&tailLines=5&boot=-1&pattern=a.*%24(id)": "200 " + always + "[--lines=5][--unit=web][--grep=a.*$(id)][--boot=-1]",
		"query=web&sinceTime=2026-11-23T12:00:00%2B02:00&untilTime=2026-11-23T12:00:00Z": "200 " + always +
			"[--since=2026-11-23 10:00:00 UTC][--until=2026-11-23 12:00:00 UTC][--unit=web]",
		"query=app": "200 of the app\n", "query=plain": "200 plain\n", "query=syslog": "200 a line\n", "query=absolute": "error getting log",
		"query=app&tailLines=1":                          "try without specifying options",
		"query=/syslog":                                  "200 a line\n",
		"query=app/app.log":                              "200 of the app\n",
		"query=/fifo":                                    "403",
		"query=/../../etc/passwd":                        "406 query: Invalid value",
		"query=/absolute":                                "406 query: Invalid value",
		"query=/syslog&query=web":                        "406 ",
		"query=/syslog&query=/x":                         "406 ",
		"query=/syslog&tailLines=1":                      "406 ",
		"query=":                                         "400 query: Invalid value",
		"query=+":                                        "400 query: Invalid value",
		"tailLines=3":                                    "406 query: Required value",
		"query=--help%20x":                               "406 ",
		"query=a%3Bb":                                    "406 ",
		"query=" + strings.Repeat("x", 257):              "406 ",
		"query=a&query=b&query=c&query=d&query=e":        "406 query: Too many",
		"query=web&boot=1":                               "406 boot",
		"query=web&tailLines=100001":                     "406 tailLines",
		"query=web&tailLines=-1":                         "406 tailLines",
		"query=web&tailLines=x":                          "400 tailLines",
		"query=web&sinceTime=yesterday":                  "400 sinceTime",
		"query=web&pattern=(":                            "406 pattern",
		"query=web&pattern=" + strings.Repeat("x", 2000): "406 pattern",
		"query=web&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": "406 untilTime",
	} {
		code, body := asked(h, http.MethodGet, "/logs/?"+query, "")
		if got := fmt.Sprint(code, " ", body); !strings.Contains(got, want) || strings.Contains(got, "root:") {
			t.Errorf("%s: got %.200q, want %q", query, got, want)
		}
	}
	if code, body := asked(h, http.MethodGet, "/logs/syslog?query=web", ""); code != http.StatusNotAcceptable {
		t.Errorf("a path and a query: got %d %s", code, body)
	}
	t.Setenv("PATH", "/nowhere")
	if _, body := asked(h, http.MethodGet, "/logs/?query=web", ""); !strings.Contains(body, "log not found for web") {
		t.Errorf("without journalctl: got %q", body)
	}
}

func TestAContainerIsCheckpointed(t *testing.T) {
	h, rt, _ := kubeletOf(t, nil)
	for path, want := range map[string]int{
		"/checkpoint/default/none/c": 404, "/checkpoint/default/a/none": 404, "/checkpoint/default/a/idle": 500,
		"/checkpoint/default/a/c?timeout=x": 404, "/checkpoint/default/a/c?timeout=-1": 404,
	} {
		if code, body := asked(h, http.MethodPost, path, ""); code != want {
			t.Errorf("%s: got %d %q, want %d", path, code, body, want)
		}
	}
	if len(rt.saved) > 0 {
		t.Errorf("got %q", rt.saved)
	}
	if code, _ := asked(h, http.MethodGet, "/checkpoint/default/a/c", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d", code)
	}
	code, body := asked(h, http.MethodPost, "/checkpoint/default/a/c?timeout=7", "")
	var got struct{ Items []string }
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || len(got.Items) != 1 ||
		!strings.HasPrefix(got.Items[0], "/var/lib/podd/checkpoints/checkpoint-a_default-c-") || !strings.HasSuffix(got.Items[0], ".tar") {
		t.Fatalf("got %d %q, %v", code, body, err)
	}
	if want := "c1 " + got.Items[0] + " 7s"; !slices.Equal(rt.saved, []string{want}) {
		t.Errorf("got %q, want %q", rt.saved, want)
	}
	rt.result = errors.New("criu binary not found")
	if code, body := asked(h, http.MethodPost, "/checkpoint/default/a/c", ""); code != http.StatusInternalServerError ||
		body != "checkpointing of default/a/c failed (criu binary not found)\n" {
		t.Errorf("got %d %q", code, body)
	}
}

func TestPagesForPeopleAreTextOrObjects(t *testing.T) {
	h, _, _ := kubeletOf(t, func(k *Kubelet) {
		k.Flags = func() map[string]string { return map[string]string{"v": "4", "config": "/x"} }
	})
	for _, c := range []struct {
		path, accept string
		code         int
		has          []string
	}{
		{"/flagz", "", 200, []string{"\nkubelet flagz\nWarning: This endpoint is not meant to be machine parseable", "config=/x\nv=4\n"}},
		{"/flagz", "text/html, */*;q=0.8", 200, []string{"config=/x"}},
		{"/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 200, []string{`"kind":"Flagz"`, `"apiVersion":"config.k8s.io/v1beta1"`, `"name":"kubelet"`, `"flags":{"config":"/x","v":"4"}`}},
		{"/flagz", "application/json", 406, nil},
		{"/flagz", "application/json;v=v1;g=config.k8s.io;as=Flagz", 406, nil},
		{"/flagz", "application/vnd.kubernetes.protobuf", 406, nil},
		{"/statusz", "", 200, []string{"\nkubelet statusz\n", "\nStarted: ", "\nUp: 0 hr 00 min 00 sec\n", "\nGo version: go1.", "\nBinary version: 1.2.3\n", "\nPaths: /attach/ ", " /healthz ", " /statusz"}},
		{"/statusz", "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz", 200, []string{`"kind":"Statusz"`, `"binaryVersion":"1.2.3"`, `"paths":["/attach/`}},
		{"/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", 406, nil},
	} {
		code, body := asked(h, http.MethodGet, c.path, "", "Accept", c.accept)
		if code != c.code {
			t.Errorf("%s, %q: got %d %q, want %d", c.path, c.accept, code, body, c.code)
		}
		for _, part := range c.has {
			if !strings.Contains(body, part) {
				t.Errorf("%s, %q: got %q, without %q", c.path, c.accept, body, part)
			}
		}
	}
}

func TestWhichSubresourcesAPathOfTheKubeletTakes(t *testing.T) {
	for path, want := range map[string][]string{
		"/pods": {"pods", "proxy"}, "/pods/": {"pods", "proxy"}, "/podsandmore": {"proxy"}, "/runningpods/": {"pods", "proxy"},
		"/allocatedPods": {"pods", "proxy"}, "/allocatedPods/default/a": {"pods", "proxy"}, "/allocatedPodsandmore": {"proxy"},
		"/healthz": {"healthz", "proxy"}, "/healthz/ping": {"healthz", "proxy"}, "/configz": {"configz", "proxy"},
		"/metrics": {"metrics"}, "/metrics/cadvisor": {"metrics"}, "/stats/summary": {"stats"}, "/logs/": {"log"}, "/logs/syslog": {"log"},
		"/checkpoint/a/b/c": {"checkpoint"}, "/statusz": {"statusz"}, "/flagz": {"configz"},
		"/containerLogs/a/b/c": {"proxy"}, "/exec/a/b/c": {"proxy"}, "/debug/pprof/heap": {"proxy"}, "/": {"proxy"}, "/nonsense": {"proxy"},
	} {
		if got := KubeletSubresources(path); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// Whoever adds a route says who may use it.
func TestEveryRouteOfTheKubeletHasARowOfItsSubresources(t *testing.T) {
	_, _, on := kubeletOf(t, func(k *Kubelet) { k.AllocatedPods = func() []*v1.Pod { return nil } })
	_, _, off := kubeletOf(t, func(k *Kubelet) { k.Debugging = false })
	for _, g := range append(on.kubeletGroups(), off.kubeletGroups()...) {
		for _, r := range g.routes {
			_, path, method := strings.Cut(r.pattern, " ") // "GET /x" or "/x"
			if !method {
				path = r.pattern
			}
			if path != "/" && !slices.ContainsFunc(kubeletPaths, func(p kubeletPath) bool { return isUnderPath(path, p.path) }) {
				t.Errorf("%s has no row in kubeletPaths", r.pattern)
			}
		}
	}
}
