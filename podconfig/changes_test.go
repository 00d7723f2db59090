package podconfig_test

import (
	"testing"
	"testing/synctest"

	"podd/internal/pod"
	"podd/podconfig"
)

func TestWhoWatchesProblemsIsToldOfTheirChangesOnly(t *testing.T) {
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
		kept.Problems = []pod.Problem{{Origin: "b.yaml", Message: "is empty", KeptRunning: true}}
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
