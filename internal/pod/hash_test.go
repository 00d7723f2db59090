package pod_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// The value stands in the annotations of containers that run: an upgrade of
// podd must not take them for changed.
func TestContainerHashStaysWhatItWas(t *testing.T) {
	c := &v1.Container{Name: "web", Image: "localhost/podd/web:1"}
	if got, want := pod.ContainerHash(c), "e1b3b8ba"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	other := *c
	other.Image, other.TTY = "localhost/podd/web:2", true
	if pod.ContainerHash(&other) == pod.ContainerHash(c) {
		t.Error("another image has the same hash")
	}
	other.Image = c.Image
	if pod.ContainerHash(&other) != pod.ContainerHash(c) {
		t.Error("a field that a running container need not follow changes the hash")
	}
}
