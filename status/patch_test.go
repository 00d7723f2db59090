package status_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"podd/status"
)

// running is the status of a pod that runs, as podd computes it.
func running() v1.PodStatus {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC))
	return v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.0.0.1", StartTime: &at,
		Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at},
			{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: at},
		},
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}}},
	}
}

// patched applies a patch as the apiserver does.
func patched(t *testing.T, p *v1.Pod, patch []byte) *v1.Pod {
	t.Helper()
	before, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	out := &v1.Pod{}
	if err := json.Unmarshal(after, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func bound(s v1.PodStatus) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"}, Status: s}
}

func TestAPatchMakesTheStatusThatOfPodd(t *testing.T) {
	gate := v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue, Reason: "Somebody"}
	scheduled := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue}
	claim := "claim-1"
	theirs := bound(v1.PodStatus{
		Phase: v1.PodPending, Conditions: []v1.PodCondition{gate, scheduled},
		ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim}},
	})
	patch, err := status.Patch(theirs, running())
	if err != nil || !strings.Contains(string(patch), `"uid":"uid-1"`) {
		t.Fatalf("got %s, %v, want a patch that names the UID", patch, err)
	}
	after := patched(t, theirs, patch)
	want := running()
	if after.Status.Phase != want.Phase || after.Status.PodIP != want.PodIP || len(after.Status.ContainerStatuses) != 1 {
		t.Errorf("got %+v", after.Status)
	}
	if len(after.Status.Conditions) != 3 || len(after.Status.ResourceClaimStatuses) != 1 {
		t.Errorf("got conditions %+v and claims %+v: those of others must stay", after.Status.Conditions, after.Status.ResourceClaimStatuses)
	}
	if again, err := status.Patch(after, running()); again != nil || err != nil {
		t.Errorf("of the same status: got %s, %v, want no patch", again, err)
	}
}

func TestWhatPoddNoLongerSaysIsRemoved(t *testing.T) {
	before := running()
	before.Conditions = append(before.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue})
	before.Message = "was waiting"
	theirs := bound(before)
	patch, err := status.Patch(theirs, running())
	if err != nil {
		t.Fatal(err)
	}
	if after := patched(t, theirs, patch).Status; len(after.Conditions) != 2 || after.Message != "" {
		t.Errorf("got %+v", after)
	}
}

func TestATerminalPhaseIsNeverLeft(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		if patch, err := status.Patch(bound(v1.PodStatus{Phase: phase}), running()); patch != nil || err != nil {
			t.Errorf("%s: got %s, %v, want no patch", phase, patch, err)
		}
	}
}

func TestTheOrderOfConditionsIsNoChange(t *testing.T) {
	theirs := running()
	theirs.Conditions[0], theirs.Conditions[1] = theirs.Conditions[1], theirs.Conditions[0]
	if patch, err := status.Patch(bound(theirs), running()); patch != nil || err != nil {
		t.Errorf("got %s, %v, want no patch", patch, err)
	}
}
