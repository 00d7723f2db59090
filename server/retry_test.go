package server

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestRetryIsAskedOfTheSocketByPostOnly(t *testing.T) {
	var asked []pod.UID
	s, n := start(t, func(c *Config) {
		c.Retry = func(uid pod.UID) bool {
			asked = append(asked, uid)
			return uid != "uid-b" // is gone by now
		}
	})
	refused, done := aPod("refused", waits), aPod("done", waits)
	refused.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu"}
	done.Status.Phase = v1.PodFailed  // and of one init container less its others still wait
	evicted := aPod("evicted", waits) // before a boot, which took its containers
	evicted.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: pod.ReasonEvicted}
	n.set(aPod("a", runs), aPod("b", waits), refused, done, evicted)
	for _, tt := range []struct {
		listener, method, query, body string
		code                          int
		answer                        string
		asked                         []pod.UID
	}{
		{"socket", "POST", "?pod=default/a", "", 200, `{"pods":["default/a"]}`, []pod.UID{"uid-a"}},
		{"socket", "POST", "?pod=default/a&pod=default/b", "", 200, `{"pods":["default/a"]}`, []pod.UID{"uid-a", "uid-b"}},
		{"socket", "POST", "?all", "", 200, `{"pods":["default/refused"]}`, []pod.UID{"uid-b", "uid-refused"}},
		{"socket", "POST", "?all&namespace=other", "", 200, `{"pods":[]}`, nil},
		{"socket", "POST", "?pod=default/a&pod=default/c", "", 404, "no pod default/c", nil},
		{"socket", "POST", "", "", 400, "specify ?pod", nil},
		{"socket", "POST", "?all&pod=default/a", "", 400, "specify ?pod", nil},
		{"socket", "GET", "?all", "", 405, "only POST", nil},
		{"socket", "POST", "?all", "x", 413, "request bodies are not allowed", nil},
		{"readonly", "POST", "?all", "", 405, "only GET and HEAD", nil},
		{"healthz", "POST", "?all", "", 405, "only GET and HEAD", nil},
	} {
		asked = nil
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://localhost/retry"+tt.query, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := clientOf(s, tt.listener).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != tt.code || !strings.Contains(string(body), tt.answer) || !slices.Equal(asked, tt.asked) {
			t.Errorf("%s %s on the %s: got %d %q, asked %v; want %d %q, %v", tt.method, tt.query, tt.listener,
				resp.StatusCode, body, asked, tt.code, tt.answer, tt.asked)
		}
	}
}

func TestWithoutRetryThereIsNoSuchRoute(t *testing.T) {
	s, _ := start(t, nil)
	if code, _ := get(t, s, "socket", "/retry"); code != 404 {
		t.Errorf("got %d, want 404", code)
	}
}
