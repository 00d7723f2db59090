package server

import (
	"errors"
	"strings"
	"testing"
)

func TestTheSummaryIsAskedForWhatTheClientWants(t *testing.T) {
	s, _ := start(t, nil)
	runtime := s.runtime.(*fakeRuntime)
	for _, tt := range []struct {
		query   string
		storage bool
	}{{"", true}, {"?only_cpu_and_memory=true", false}, {"?only_cpu_and_memory=no", true}} {
		runtime.storage = nil
		code, body := get(t, s, "readonly", "/stats/summary"+tt.query)
		if code != 200 || strings.TrimSpace(body) != `{"node":"n"}` || len(runtime.storage) != 1 || runtime.storage[0] != tt.storage {
			t.Errorf("%q: got %d %q, asked for storage %v, want %v", tt.query, code, body, runtime.storage, tt.storage)
		}
	}
	runtime.result = errors.New("no runtime yet")
	if code, body := get(t, s, "socket", "/stats/summary"); code != 503 || !strings.Contains(body, "no runtime yet") {
		t.Errorf("got %d %q", code, body)
	}
}
