package cgroup

import (
	"errors"
	"log/slog"
	"testing"

	"podd/internal/pod"
)

func TestAKillThatTheRuntimeMissedIsOOMKilled(t *testing.T) {
	kills, fails := int64(0), error(nil)
	w := NewOOMDetector(func(pod.UID) (int64, error) { return kills, fails }, slog.New(slog.DiscardHandler))
	dead := func(id string, code int32, reason string) pod.Container {
		return pod.Container{ID: id, State: pod.ContainerExited, ExitCode: code, Reason: reason}
	}
	attribute := func(what string, all []pod.Container, want ...string) {
		t.Helper()
		seen := pod.Observed{Containers: append([]pod.Container(nil), all...)}
		w.Attribute("u", &seen)
		for i, c := range seen.Containers {
			if c.Reason != want[i] {
				t.Errorf("%s: %s: got %q, want %q", what, c.ID, c.Reason, want[i])
			}
		}
	}
	a, b, c := dead("a", 137, "Error"), dead("b", 137, "Error"), dead("c", 137, "OOMKilled")
	attribute("nothing exited", []pod.Container{{ID: "a", State: pod.ContainerRunning}}, "")
	attribute("SIGKILL from elsewhere", []pod.Container{a}, "Error")
	kills = 2
	attribute("an OOM kill of another", []pod.Container{b, a}, "OOMKilled", "Error")
	attribute("again", []pod.Container{b, a}, "OOMKilled", "Error")
	kills = 4
	attribute("an OOM kill that the runtime reports", []pod.Container{c, b}, "OOMKilled", "OOMKilled")
	attribute("which accounts for the kills", []pod.Container{dead("d", 137, "Error"), c}, "Error", "OOMKilled")
	kills = 6
	attribute("another exit code", []pod.Container{dead("e", 1, "Error")}, "Error")
	kills, fails = 9, errors.New("no such file")
	attribute("the count cannot be read", []pod.Container{dead("f", 137, "Error")}, "Error")
	attribute("the pod is gone", nil)
	if len(w.pods) != 0 {
		t.Errorf("the pod is gone, but its state is kept: %v", w.pods)
	}
	// A restarted podd knows of no kill yet.
	kills, fails = 3, nil
	attribute("after a restart", []pod.Container{dead("b", 137, "Error")}, "OOMKilled")
	attribute("after a restart", []pod.Container{dead("g", 137, "Error"), b}, "Error", "OOMKilled")
	// The pod's cgroup was recreated and counts from zero.
	kills = 0
	attribute("a new group", []pod.Container{dead("h", 137, "Error")}, "Error")
	kills = 1
	attribute("an OOM kill in it", []pod.Container{dead("i", 137, "Error")}, "OOMKilled")
}

// A container has a cgroup of its own at each start, whose count begins at 0.
func TestKillsThatEndedAContainerAreKept(t *testing.T) {
	w := NewOOMDetector(func(pod.UID) (int64, error) { return 0, nil }, slog.New(slog.DiscardHandler))
	container := func(name, id, reason string) pod.Container {
		c := pod.Container{Name: name, ID: id, State: pod.ContainerRunning, Reason: reason}
		if reason != "" {
			c.State, c.ExitCode = pod.ContainerExited, 137
		}
		return c
	}
	see := func(containers ...pod.Container) { w.Attribute("u", &pod.Observed{UID: "u", Containers: containers}) }
	check := func(what, name, id string, want uint64) {
		t.Helper()
		if got := w.PastOOMKills("u", name, id); got != want {
			t.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	check("a pod that nobody has seen", "a", "a0", 0)
	see(container("a", "a0", "OOMKilled"), container("b", "b0", "Error"))
	check("the container itself", "a", "a0", 0)
	for range 2 {
		see(container("a", "a1", ""), container("a", "a0", "OOMKilled"), container("b", "b1", ""), container("b", "b0", "Error"))
		check("the next one", "a", "a1", 1)
		check("one that ended otherwise", "b", "b1", 0)
	}
	see(container("a", "a2", ""), container("a", "a1", "OOMKilled"))
	check("after two kills, of one of which the runtime has no record", "a", "a2", 2)
	see()
	check("the pod is gone", "a", "a2", 0)
	if len(w.past) > 0 {
		t.Errorf("the pod is gone, but its kills are kept: %v", w.past)
	}
}
