package apiserver

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var errRefused = errors.New("refused")

// answers is a transport that answers with a code, or not at all for 0.
type answers int

func (t answers) RoundTrip(*http.Request) (*http.Response, error) {
	if t == 0 {
		return nil, errRefused
	}
	return &http.Response{StatusCode: int(t)}, nil
}

func TestRequestsAreCountedByTheirAnswers(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	for _, code := range []answers{200, 200, 429, 0} {
		r := httptest.NewRequest(http.MethodPatch, "https://elsewhere/api", nil)
		answer, err := countingTransport{m, code, "host:6443"}.RoundTrip(r)
		if (err == nil) != (code != 0) || err != nil && !errors.Is(err, errRefused) || err == nil && answer.StatusCode != int(code) {
			t.Errorf("%d: got %v, %v", code, answer, err)
		}
	}
	for code, want := range map[string]float64{"200": 2, "429": 1, "<error>": 1} {
		if got := testutil.ToFloat64(m.results.WithLabelValues(code, "PATCH", "host:6443")); got != want {
			t.Errorf("%s: got %v, want %v", code, got, want)
		}
	}
	if n := testutil.CollectAndCount(m.results); n != 3 {
		t.Errorf("got %d series, want 3", n)
	}
	if n, err := testutil.GatherAndCount(reg, "rest_client_request_duration_seconds"); n != 1 || err != nil {
		t.Errorf("got %d, %v, want one histogram", n, err)
	}
}
