package cri_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"podd/cri"
	"podd/cri/critest"
	"podd/internal/pod"
)

// TestInspectReadsWhatContainerdTells, as it was recorded of a real one; a runtime that
// reports nothing, or something else, is no error, and one that reports nonsense is.
func TestInspectReadsWhatContainerdTells(t *testing.T) {
	recorded, err := os.ReadFile("../inspect/testdata/containerd-bound.json")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(info string) (cri.Inspection, error) {
		r := newRig(t)
		r.srv.Script("app", critest.Script{Info: info})
		p := aPod("a")
		id, err := r.CreateContainer(t.Context(), r.request(t, p, r.sandbox(t, p, 0), 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return r.Inspect(t.Context(), id)
	}
	got, err := ask(string(recorded))
	if err != nil {
		t.Fatal(err)
	}
	if got.State != pod.ContainerRunning || got.PID == 0 || got.Spec == nil || got.Spec.Process.User.UID != 1000 ||
		*got.Spec.Linux.Resources.Memory.Limit != 32<<20 || len(got.Spec.Mounts) != 14 || got.Spec.Linux.Seccomp == nil {
		t.Errorf("got %+v", got)
	}
	for _, info := range []string{"", `{"pid": 7}`} {
		if got, err := ask(info); err != nil || got.Spec != nil || got.State != pod.ContainerRunning {
			t.Errorf("%q: got %+v, %v", info, got, err)
		}
	}
	if _, err := ask("not JSON"); err == nil || !strings.Contains(err.Error(), "read the runtime's information") {
		t.Errorf("nonsense: got %v", err)
	}
}

// TestInspectOfARemovedContainer.
func TestInspectOfARemovedContainer(t *testing.T) {
	if _, err := newRig(t).Inspect(t.Context(), "gone"); !errors.Is(err, pod.ErrNotFound) {
		t.Errorf("got %v, want %v", err, pod.ErrNotFound)
	}
}
