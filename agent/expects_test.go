package agent

import (
	"testing"

	"podd/internal/pod"
)

func TestAPodIsExpectedUntilAllAreKnownAndItHasBeenLookedAt(t *testing.T) {
	a := &Agent{workers: map[pod.UID]*worker{"uid": {name: "default/web"}}}
	for _, c := range []struct {
		settled  bool
		name     string
		expected bool
	}{
		{false, "web", true},
		{false, "other", true},
		{true, "web", true}, // it has a worker
		{true, "other", false},
	} {
		a.allKnown = c.settled
		if got := a.Expects("default", c.name); got != c.expected {
			t.Errorf("settled %v, pod %s: got %v, want %v", c.settled, c.name, got, c.expected)
		}
	}
}
