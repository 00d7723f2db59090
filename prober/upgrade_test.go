package prober

import (
	"log/slog"
	"os"
	"testing"

	"podd/internal/pod"
)

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestResultsOfAnEarlierPoddAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/earlier")); err != nil {
		t.Fatal(err)
	}
	want := pod.Probes{ContainerID: "c1", Startup: pod.ProbeSucceeded, Ready: pod.ProbeFailed, Live: pod.ProbeSucceeded}
	if got := loadCheckpoint(dir, slog.New(slog.DiscardHandler)).takeRestored("u1", "web", "c1"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
