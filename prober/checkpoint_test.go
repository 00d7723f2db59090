package prober

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestResultsAreWrittenOnChangeOnlyAndGoWithTheirPod(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "probes")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dir)
		b.succeed()
		b.sync(aPod("a", nil, every(1), nil), "a1")
		b.at(sec)
		path := filepath.Join(dir, "a.json")
		text, err := os.ReadFile(path)
		if want := `{"web":{"id":"a1","ready":"succeeded"}}`; err != nil || string(text) != want {
			t.Fatalf("got %q (%v), want %q", text, err, want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		b.at(100 * sec) // a hundred results, and no change
		if got := filesIn(t, dir); len(got) != 0 {
			t.Errorf("got %v, want nothing written without a change", got)
		}
		b.fail("down")
		b.at(110 * sec)
		if got := filesIn(t, dir); len(got) != 1 {
			t.Errorf("got %v, want the file of a", got)
		}
		b.Forget("a")
		b.at(111 * sec)
		if got := filesIn(t, dir); len(got) != 0 {
			t.Errorf("got %v, want nothing left of a pod that is gone", got)
		}
		b.stop()
	})
}

// TestAPoddThatIsKilledAfterAPodWasForgottenLeavesNoFileOfIt: the next one would keep it
// until all sources have spoken, in case the pod comes back.
func TestAPoddThatIsKilledAfterAPodWasForgottenLeavesNoFileOfIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "probes")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dir)
		b.succeed()
		b.sync(aPod("a", nil, every(1), nil), "a1")
		b.at(sec)
		if got := filesIn(t, dir); len(got) != 1 {
			t.Errorf("got %v, want the file of a", got)
		}
		b.Forget("a")
		if got := filesIn(t, dir); len(got) != 0 { // whatever happens to podd from here
			t.Errorf("got %v, want nothing", got)
		}
		b.stop()
	})
}

// TestWhatWasSavedOfAPodThatIsGoneGoesOnceThatIsKnown: a podd that is killed in between has
// left it. What is saved of others stays.
func TestWhatWasSavedOfAPodThatIsGoneGoesOnceThatIsKnown(t *testing.T) {
	dir := t.TempDir()
	for _, uid := range []string{"gone", "there", "comes"} {
		if err := os.WriteFile(filepath.Join(dir, uid+".json"), []byte(`{"web":{"id":"`+uid+`1","ready":"succeeded"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dir)
		b.sync(aPod("there", nil, every(1), nil), "there1")
		b.Retain(map[pod.UID]bool{"there": true, "comes": true})
		b.at(sec)
		got := filesIn(t, dir)
		slices.Sort(got)
		if !slices.Equal(got, []string{"comes.json", "there.json"}) {
			t.Errorf("got %v, want those of the pods that are there", got)
		}
		b.sync(aPod("comes", nil, every(1), nil), "comes1")
		b.expect("comes", "web", pod.Probes{ContainerID: "comes1", Ready: pod.ProbeSucceeded})
		b.stop()
	})
}

// TestAHostileUIDStaysInTheDirectory.
func TestAHostileUIDStaysInTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "probes")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dir)
		p := aPod("../../evil", nil, every(1), nil)
		b.sync(p, "a1")
		b.stop()
		if got := filesIn(t, dir); len(got) != 1 || got[0] != "..%2F..%2Fevil.json" {
			t.Errorf("got %v, want one file", got)
		}
	})
	if got := filesIn(t, filepath.Join(dir, "..", "..")); len(got) != 1 {
		t.Errorf("got %v beside the directory", got)
	}
}

func TestWhatNobodyNamesAndWhatCannotBeReadGoes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"gone.json": `{"web":{"id":"g1","ready":"succeeded"}}`, "broken.json": `{"web":`, "flood.json": strings.Repeat("[", 1<<20),
		"odd.json": `{"web":{"id":"o1","ready":"perhaps","live":7}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dir)
		b.sync(aPod("broken", nil, every(1), nil), "g1")
		b.expect("broken", "web", pod.Probes{ContainerID: "g1"})
		b.at(2 * time.Hour)
		if got := filesIn(t, dir); len(got) != 1 || got[0] != "broken.json" {
			t.Errorf("got %v, want the one of the pod that is there", got)
		}
		b.stop()
	})
}

func TestADirectoryThatCannotBeCreatedIsOnlyLogged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if k := loadCheckpoint(filepath.Join(file, "probes"), slog.New(slog.NewTextHandler(&log, nil))); k == nil || !strings.Contains(log.String(), "cannot save probe results") {
		t.Errorf("got log %q", log.String())
	}
}

// A kubelet started the container, in whose place podd is now.
func TestTheStartupProbeOfAContainerThatIsShownAsStartedIsNotRunAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		started := true
		for id, want := range map[string]pod.Probes{
			"a1": {ContainerID: "a1", Startup: ok},
			"a2": {ContainerID: "a2"}, // another one than the apiserver shows
		} {
			p := aPod(pod.UID(id), every(10), every(10), nil)
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", ContainerID: "containerd://a1", Started: &started, Ready: true}}
			b.Sync(p, "10.0.0.1", []pod.ProbeTarget{{Container: &p.Spec.Containers[0], ContainerID: id, StartedAt: time.Now()}}, false)
			b.expect(p.UID, "web", want)
		}
		b.at(31 * sec)
		b.expect("a1", "web", pod.Probes{ContainerID: "a1", Startup: ok, Ready: pod.ProbeFailed})
		b.expect("a2", "web", pod.Probes{ContainerID: "a2", Startup: pod.ProbeFailed})
	})
}
