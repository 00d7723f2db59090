package server

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// TestMetricsOfPodsAreWrittenForScrapers: compressed where they take it, and errors are
// responses.
func TestMetricsOfPodsAreWrittenForScrapers(t *testing.T) {
	s := New(Config{Socket: "/none", Pods: noPods{}})
	ask := func(path, accept string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", accept)
		s.handler(s.apis()[0]).ServeHTTP(w, r)
		return w
	}
	if w := ask("/metrics/resource", ""); w.Code != 503 || !strings.Contains(w.Body.String(), "runtime has not responded") {
		t.Errorf("before there is a runtime: got %d %s", w.Code, w.Body)
	}
	runtime := &fakeRuntime{}
	s.Attach(runtime)
	for accept, compressed := range map[string]bool{"": false, "gzip": true, "br, gzip;q=0.5": true, "gzip; q=0": false, "identity": false} {
		w := ask("/metrics/cadvisor", accept)
		body := io.Reader(w.Body)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != compressed {
			t.Errorf("%q: compressed is %v", accept, got)
		} else if got {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil || strings.Count(string(text), "container_last_seen 1\n") != 1000 || w.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("%q: got %d bytes of %s, %v", accept, len(text), w.Header().Get("Content-Type"), err)
		}
	}
	runtime.result = errors.New("no cgroups")
	if w := ask("/metrics/resource", "gzip"); w.Code != 503 || w.Header().Get("Content-Encoding") != "" || !strings.Contains(w.Body.String(), "no cgroups") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestScrapesWaitForAPlace, and get one.
func TestScrapesWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Socket: "/none", Pods: noPods{}})
		s.Attach(&fakeRuntime{})
		for range maxScrapes {
			s.scrapes <- struct{}{}
		}
		w, done := httptest.NewRecorder(), false
		go func() {
			s.handler(s.apis()[0]).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/resource", nil))
			done = true
		}()
		synctest.Wait()
		if done {
			t.Error("one more than there are places")
		}
		<-s.scrapes
		synctest.Wait()
		if !done || w.Code != 200 {
			t.Errorf("with a place: done is %v, got %d", done, w.Code)
		}
		s.scrapes <- struct{}{}
		w = httptest.NewRecorder()
		s.handler(s.apis()[0]).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
		if w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("without one, for long: got %d", w.Code)
		}
	})
}

type noPods struct{}

func (noPods) Pods() []*v1.Pod       { return nil }
func (noPods) Origin(pod.UID) string { return "" }
