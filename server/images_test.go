package server

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestImagesAreOfTheSocketAlone(t *testing.T) {
	s, _ := start(t, nil)
	ask := func(listener, method, path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := clientOf(s, listener).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, tt := range []struct {
		listener, method, path string
		code                   int
		answer                 string
	}{
		{"socket", "GET", "/podd/v1/images", 200, `"names":["reg.test/a:1"],"size":7,"pods":["default/a"]`},
		{"socket", "POST", "/podd/v1/images/remove?image=x", 200, `"names":["x"]`},
		{"socket", "POST", "/podd/v1/images/remove?unused", 200, `"id":"sha256:2"`},
		{"socket", "POST", "/podd/v1/images/remove?image=none", 404, "no image none"},
		{"socket", "POST", "/podd/v1/images/remove", 400, "specify ?image=NAME or ?unused"},
		{"socket", "POST", "/podd/v1/images/remove?unused&image=x", 400, "specify ?image=NAME or ?unused"},
		{"socket", "GET", "/podd/v1/images/remove?unused", 405, "only POST"},
		{"readonly", "GET", "/podd/v1/images", 404, ""},
		{"readonly", "POST", "/podd/v1/images/remove?unused", 405, "only GET and HEAD"},
	} {
		if code, body := ask(tt.listener, tt.method, tt.path); code != tt.code || !strings.Contains(body, tt.answer) {
			t.Errorf("%s %s on the %s: got %d %q, want %d %q", tt.method, tt.path, tt.listener, code, body, tt.code, tt.answer)
		}
	}
	s.runtime.(*fakeRuntime).result = errors.New("the disk is on fire")
	if code, body := ask("socket", "GET", "/podd/v1/images"); code != 500 || !strings.Contains(body, "the disk is on fire") {
		t.Errorf("got %d %q", code, body)
	}
}
