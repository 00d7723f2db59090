package main

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// look is a pod as an agent shows it; without conditions it has not looked yet.
func look(phase v1.PodPhase, conditions ...v1.PodCondition) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: v1.PodStatus{Phase: phase, Conditions: conditions}}
}

func TestAnAgentThatHasJustBeenStartedShowsNothingYet(t *testing.T) {
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	for name, c := range map[string]struct {
		looks []*v1.Pod
		want  []string
	}{
		"from the start":      {[]*v1.Pod{look("Pending"), look("Running", ready)}, []string{"#0 Pending", "#0 Running"}},
		"after a restart":     {[]*v1.Pod{look("Running", ready), look("Pending"), look("Running", ready)}, []string{"#0 Running"}},
		"and it stays so":     {[]*v1.Pod{look("Running", ready), look("Pending")}, []string{"#0 Running", "#0 Pending"}},
		"a status of its own": {[]*v1.Pod{look("Running", ready), look("Pending", ready), look("Running", ready)}, []string{"#0 Running", "#0 Pending", "#0 Running"}},
	} {
		w := &watched{}
		w.put("text")
		for _, p := range c.looks {
			w.see(p, time.Now())
		}
		w.take()
		var got []string
		for _, s := range w.series[0].Axes["phase"] {
			got = append(got, s.State)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestARestartIsPartOfAState(t *testing.T) {
	p := look("Running", v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady"})
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", RestartCount: 2}, {Name: "b", RestartCount: 1, Ready: true}}
	axes := axesOf(p)
	for axis, want := range map[string]string{
		"phase": "#3 Running", "Ready": "#3 False ContainersNotReady", "a": "#2 waiting:", "a ready": "#2 false", "b ready": "#1 true", "b started": "#1 unset",
	} {
		if got := axes[axis].is; got != want {
			t.Errorf("%s: got %q, want %q", axis, got, want)
		}
	}
}
