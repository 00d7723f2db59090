package podconfig_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"podd/internal/pod"
	"podd/podconfig"
)

func TestWatchersOfProblemsAreNotifiedOfTheirChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newScript(pod.SourceFile)
		w := start(t, nil, f).read()
		changes, stop := w.conf.Changes()
		say := func(snap podconfig.Snapshot) (told bool) {
			f.say <- snap
			synctest.Wait()
			select {
			case <-changes:
				return true
			default:
				return false
			}
		}
		a := desired("file", "a.yaml", "a", "1")
		broken := podconfig.Snapshot{Pods: []*pod.Desired{a}, Problems: []pod.Problem{{Origin: "b.yaml", Message: "is empty"}}}
		if say(pods(a)) {
			t.Error("told of a pod that has no problem")
		}
		if !say(broken) || len(w.conf.Problems()) != 1 {
			t.Error("not told of a new problem")
		}
		if say(broken) {
			t.Error("told of the same problem again")
		}
		kept := broken
		kept.Problems = []pod.Problem{{Origin: "b.yaml", Message: "is empty", LastGoodInUse: true}}
		if !say(kept) {
			t.Error("not told that the last good version goes on running")
		}
		if !say(pods(a)) || len(w.conf.Problems()) != 0 {
			t.Error("not told that the problem is gone")
		}
		stop()
		if say(broken) {
			t.Error("told after the end of the subscription")
		}
	})
}

// What podd says of pods that have a name twice: the first of them has it.
func TestDuplicatesAreNamedWithTheirPlaces(t *testing.T) {
	at := func(origin string, line int, name string) *pod.Desired {
		d := desired(pod.SourceFile, origin, name, origin+strconv.Itoa(line))
		d.Line = line
		return d
	}
	var got []string
	for _, p := range podconfig.Duplicates([]*pod.Desired{at("/b", 1, "web"), at("/a", 9, "web"), at("/a", 3, "web"), at("/a", 5, "db")}, nil) {
		got = append(got, fmt.Sprintf("%s:%d %s", p.Origin, p.Line, p.Message))
	}
	slices.Sort(got)
	want := []string{
		"/a:3 the pod default/web is defined twice; the one at /b:1 has the name",
		"/a:9 the pod default/web is defined twice; the one at /b:1 has the name",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := podconfig.Duplicates([]*pod.Desired{at("/a", 1, "web"), at("/b", 1, "db")}, nil); len(got) > 0 {
		t.Errorf("no duplicates: got %v", got)
	}
}
