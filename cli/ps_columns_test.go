package cli

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// TestAWatchWritesARowAgainWhenSomethingChanged: and not because time has
// passed.
func TestAWatchWritesARowAgainWhenSomethingChanged(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	start := metav1.NewTime(now.Add(-time.Hour))
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Minute))}}
	l := aListing(aContainer(v1.ContainerState{Running: &v1.ContainerStateRunning{}}, ended))
	l.Pods[0].Origin = "/m/p0.yaml"
	p := l.Pods[0].Pod
	p.Spec = v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Image: "i:1"}}}
	p.Status.Phase, p.Status.StartTime, p.Status.ContainerStatuses[0].RestartCount = v1.PodRunning, &start, 1
	s := watchStream{view: view{wide: true}}
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"first", func() {}, "NAMESPACE NAME READY STATUS RESTARTS AGE IP NODE IMAGES SOURCE UID\n" +
			"default p0 0/1 Running 1 (60s ago) 60m <none> n i:1 /m/p0.yaml p0\n"},
		{"an hour later", func() { now = now.Add(time.Hour) }, ""},
		{"ready", func() { p.Status.ContainerStatuses[0].Ready = true }, "default p0 1/1 Running 1 (61m ago) 120m <none> n i:1 /m/p0.yaml p0\n"},
		{"an address", func() { p.Status.PodIP = "10.88.0.5" }, "default p0 1/1 Running 1 (61m ago) 120m 10.88.0.5 n i:1 /m/p0.yaml p0\n"},
		{"a restart", func() { p.Status.ContainerStatuses[0].RestartCount++ }, "default p0 1/1 Running 2 (61m ago) 120m 10.88.0.5 n i:1 /m/p0.yaml p0\n"},
		{"its manifest broke", func() { l.Problems = []pod.Problem{{Pod: "default/p0", Message: "broken", LastGoodInUse: true}} },
			"default p0 1/1 Running (last good manifest) 2 (61m ago) 120m 10.88.0.5 n i:1 /m/p0.yaml p0\n"},
	} {
		step.change()
		var b strings.Builder
		if err := s.write(&b, l, now); err != nil {
			t.Fatal(err)
		}
		got := ""
		for text := range strings.Lines(b.String()) {
			if !strings.HasPrefix(text, "  ") { // a sentence
				got += strings.Join(strings.Fields(text), " ") + "\n"
			}
		}
		if got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
}
