package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podd/cri"
	"podd/internal/pod"
)

// fakeInspector is a fake runtime's responses, by container ID.
type fakeInspector map[string]error

func (r fakeInspector) Inspect(_ context.Context, id string) (cri.Inspection, error) {
	got := cri.Inspection{State: pod.ContainerRunning, PID: 7}
	if id == "whole" {
		got.Spec = &specs.Spec{Process: &specs.Process{Env: []string{"A=hidden"}}}
	}
	return got, r[id]
}

// TestInspectAsksForEachContainerThatIsThere, and says why there is nothing to
// compare for the others.
func TestInspectAsksForEachContainerThatIsThere(t *testing.T) {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "web", "uid"
	for _, name := range []string{"whole", "silent", "gone", "away"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: name, ContainerID: "containerd://" + name})
	}
	p.Spec.InitContainers = []v1.Container{{Name: "late"}}
	i := inspector{cri.Version{Name: "other", Version: "v1"}, fakeInspector{"gone": fmt.Errorf("x: %w", pod.ErrNotFound), "away": pod.ErrUnavailable}}
	for container, want := range map[string]string{
		"whole": "", "silent": "other does not report what it passed", "gone": "does not have this container any more", "late": "no container yet",
	} {
		got, err := i.pod(t.Context(), p, container)
		if err != nil || len(got.Containers) != 1 {
			t.Fatalf("%s: got %+v, %v", container, got, err)
		}
		c := got.Containers[0]
		if !strings.Contains(c.Message, want) || (c.Message == "") != (want == "") || (want == "") != (c.Spec != nil && len(c.Rows) > 0) {
			t.Errorf("%s: got %+v, want %q", container, c, want)
		}
		if c.Spec != nil && c.Spec.Process.Env[0] != "A=<masked>" {
			t.Errorf("%s: got %q", container, c.Spec.Process.Env)
		}
	}
	if _, err := i.pod(t.Context(), p, ""); !errors.Is(err, pod.ErrUnavailable) {
		t.Errorf("an unavailable runtime: got %v", err)
	}
}

// TestANamespaceIsComparedWithTheNodes.
func TestANamespaceIsComparedWithTheNodes(t *testing.T) {
	for path, want := range map[string][2]bool{"/proc/self/ns/net": {true, true}, "/proc/self/ns/uts": {false, true}, "/proc/0/ns/net": {false, false}} {
		if own, known := isNodeNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: path}); own != want[0] || known != want[1] {
			t.Errorf("%s: got %t, %t, want %v", path, own, known, want)
		}
	}
}
