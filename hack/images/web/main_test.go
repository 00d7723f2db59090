package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
)

func TestPageNamesThePod(t *testing.T) {
	t.Setenv("POD_NAME", "web-node1")
	for _, accept := range []string{"text/html", "*/*"} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept", accept)
		rec := httptest.NewRecorder()
		handler(time.Now(), health{}).ServeHTTP(rec, req)
		if rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "web-node1") {
			t.Errorf("Accept %s: got %d %q, want 200 and the pod's name", accept, rec.Code, rec.Body)
		}
		if isPage := strings.Contains(rec.Body.String(), "<h1>"); isPage != (accept == "text/html") {
			t.Errorf("Accept %s: got %q", accept, rec.Body)
		}
	}
}

func TestHealthFollowsAFile(t *testing.T) {
	h := health{sick: filepath.Join(t.TempDir(), "sick")}
	ask := func() (int, grpc_health_v1.HealthCheckResponse_ServingStatus) {
		rec := httptest.NewRecorder()
		handler(time.Now(), h).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		resp, err := h.Check(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return rec.Code, resp.Status
	}
	if code, status := ask(); code != http.StatusOK || status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("without the file: got %d and %v", code, status)
	}
	if err := os.WriteFile(h.sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, status := ask(); code != http.StatusServiceUnavailable || status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("with the file: got %d and %v", code, status)
	}
}
