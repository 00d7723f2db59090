package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPageNamesThePod(t *testing.T) {
	t.Setenv("POD_NAME", "web-node1")
	for _, accept := range []string{"text/html", "*/*"} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept", accept)
		rec := httptest.NewRecorder()
		handler(time.Now()).ServeHTTP(rec, req)
		if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "web-node1") {
			t.Errorf("Accept %s: got %d %q, want 200 and the pod's name", accept, rec.Code, rec.Body)
		}
		if isPage := strings.Contains(rec.Body.String(), "<h1>"); isPage != (accept == "text/html") {
			t.Errorf("Accept %s: got %q", accept, rec.Body)
		}
	}
}
