package server

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestPagesInABrowserDoNotReadThePorts: DNS rebinding makes a browser ask
// loopback by a stranger's name.
func TestPagesInABrowserDoNotReadThePorts(t *testing.T) {
	n := &node{}
	n.set()
	s := New(Config{NodeName: "node-1", Pods: n})
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:10255": 200, "[::1]:10255": 200, "[::1]": 200, "[fe80::1%25eth0]:10255": 200, "192.0.2.7:10255": 200,
		"localhost": 200, "LocalHost:10255": 200, "localhost.:10255": 200, "node-1": 200, "Node-1:10255": 200, "": 200,
		"evil.test": 403, "evil.test:10255": 403, "localhost.evil.test": 403, "node-1.evil.test": 403, "127.0.0.1.evil.test": 403, "127.1": 403, ":::": 403,
	} {
		for _, name := range []string{"readonly", "healthz"} {
			r := httptest.NewRequest("GET", "/healthz", nil)
			r.Host = host
			w := httptest.NewRecorder()
			handlerOf(s, name).ServeHTTP(w, r)
			if w.Code != want || want == 403 && !strings.Contains(w.Body.String(), "localhost") {
				t.Errorf("%s by host %q: got %d %q, want %d", name, host, w.Code, w.Body, want)
			}
		}
		r := httptest.NewRequest("GET", "/pods", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if handlerOf(s, "socket").ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("the socket by host %q: got %d, want 200", host, w.Code)
		}
	}
}

func handlerOf(s *Server, name string) http.Handler {
	all := s.apis()
	return s.handler(all[slices.IndexFunc(all, func(a api) bool { return a.name == name })])
}

// TestEventsAreFoundByTheManifestsName: a static pod is called name-node.
func TestEventsAreFoundByTheManifestsName(t *testing.T) {
	s, _ := start(t, func(c *Config) {
		c.NodeName = "node-1"
		c.Events = func(_, name string) []*v1.Event {
			if name == "web-node-1" || name == "db" || name == "db-node-1" {
				return []*v1.Event{{Message: "of " + name}}
			}
			return nil
		}
	})
	for name, want := range map[string]string{
		"web": `"of web-node-1"`, "web-node-1": `"of web-node-1"`, "db": `"of db"`, "other": `"items":[]`,
	} {
		if _, body := get(t, s, "socket", "/podd/v1/events?name="+name); !strings.Contains(body, want) {
			t.Errorf("%s: got %s, want %s in it", name, body, want)
		}
	}
}
