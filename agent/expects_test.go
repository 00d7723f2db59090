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

func TestAllIsSurveyedOnceEachPodOfTheStartWasLookedAt(t *testing.T) {
	web, db := &worker{}, &worker{}
	a := &Agent{workers: map[pod.UID]*worker{"web": web, "db": db}}
	for _, c := range []struct {
		what   string
		change func()
		want   bool
	}{
		{"nothing is known", func() {}, false},
		{"one pod was looked at", func() { web.looked.Store(true) }, false},
		{"all are known, one was not looked at", func() { a.allKnown = true }, false},
		{"both were looked at", func() { db.looked.Store(true) }, true},
		{"a pod came later", func() { a.workers["new"] = &worker{} }, true},
	} {
		if c.change(); a.Surveyed() != c.want {
			t.Errorf("%s: got %v, want %v", c.what, !c.want, c.want)
		}
	}
}
