package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The messages are containerd 2.4's.
func TestAContainerThatNeverRanIsToldFromOneThatMayHave(t *testing.T) {
	for message, want := range map[string]bool{
		"failed to create containerd task: failed to create shim task: context canceled":         true,
		"failed to create containerd task: failed to start shim: start failed: context canceled": true,
		`failed to start containerd task "c1": context canceled`:                                 false,
		`failed to update container "c1" state: failed to create temp file`:                      false,
		"": false,
	} {
		st := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 128, Reason: "StartError", Message: message}
		if got := fromContainerStatus("s", st).NeverRan; got != want {
			t.Errorf("%q: got %v, want %v", message, got, want)
		}
		st.StartedAt = 1
		if fromContainerStatus("s", st).NeverRan {
			t.Errorf("%q: one that was started never ran", message)
		}
		st.StartedAt, st.Reason = 0, "Error"
		if fromContainerStatus("s", st).NeverRan {
			t.Errorf("%q: one with another reason never ran", message)
		}
	}
}
