package server

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestTheSummaryIsAskedForWhatTheClientWants(t *testing.T) {
	var asked []bool
	var fails error
	s, _ := start(t, func(c *Config) {
		c.Summary = func(_ context.Context, storage bool) (any, error) {
			asked = append(asked, storage)
			return map[string]int{"pods": 2}, fails
		}
	})
	for _, tt := range []struct {
		query   string
		storage bool
	}{{"", true}, {"?only_cpu_and_memory=true", false}, {"?only_cpu_and_memory=no", true}} {
		asked = nil
		code, body := get(t, s, "readonly", "/stats/summary"+tt.query)
		if code != 200 || strings.TrimSpace(body) != `{"pods":2}` || len(asked) != 1 || asked[0] != tt.storage {
			t.Errorf("%q: got %d %q, asked for storage %v, want %v", tt.query, code, body, asked, tt.storage)
		}
	}
	fails = errors.New("no runtime yet")
	if code, body := get(t, s, "socket", "/stats/summary"); code != 503 || !strings.Contains(body, "no runtime yet") {
		t.Errorf("got %d %q", code, body)
	}
}
