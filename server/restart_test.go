package server

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func TestRestartIsAskedOfTheSocketByPostOnly(t *testing.T) {
	var asked []string
	s, n := start(t, func(c *Config) {
		c.Restart = func(uid pod.UID, container string) error {
			asked = append(asked, string(uid)+" "+container)
			if container == "none" {
				return errors.New(`the pod has no container "none"`)
			}
			return nil
		}
	})
	ended := aPod("ended", runs)
	ended.Status.Phase = v1.PodSucceeded
	n.set(aPod("a", runs), ended)
	for _, tt := range []struct {
		listener, method, query string
		code                    int
		answer, asked           string
	}{
		{"socket", "POST", "?pod=default/a", 200, `{"restarted":true}`, "uid-a "},
		{"socket", "POST", "?pod=default/a&container=c", 200, `{"restarted":true}`, "uid-a c"},
		{"socket", "POST", "?pod=default/a&container=none", 409, `cannot restart default/a: the pod has no container "none"`, "uid-a none"},
		{"socket", "POST", "?pod=default/ended", 409, "has run to its end: podd retry runs it once more", ""},
		{"socket", "POST", "?pod=default/b", 404, "no pod default/b", ""},
		{"socket", "POST", "", 400, "specify ?pod", ""},
		{"socket", "GET", "?pod=default/a", 405, "only POST", ""},
		{"readonly", "POST", "?pod=default/a", 405, "only GET and HEAD", ""},
	} {
		asked = nil
		req, err := http.NewRequestWithContext(t.Context(), tt.method, "http://localhost/podd/v1/restart"+tt.query, nil)
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
		if resp.StatusCode != tt.code || !strings.Contains(string(body), tt.answer) || strings.Join(asked, ",") != tt.asked {
			t.Errorf("%s %s on the %s: got %d %q, asked %q; want %d %q, %q", tt.method, tt.query, tt.listener, resp.StatusCode, body, asked, tt.code, tt.answer, tt.asked)
		}
	}
}
