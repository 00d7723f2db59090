package main

import (
	"context"
	"fmt"
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
			w.see(p, time.Now(), time.Now())
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

func TestAStartOfTheAgentIsABoundary(t *testing.T) {
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	w := &watched{}
	w.put("text")
	before := time.Now()
	for range 3 {
		w.see(look("Failed"), before, before)
	}
	p := &play{side: &Side{Agent: &stoppedAgent{}}, pods: map[string]*watched{"p": w}}
	for range 2 { // the second has nothing to start
		if err := p.up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.see(look("Running", ready), before, time.Now()) // what the agent that was stopped had answered
	w.see(look("Pending"), time.Now(), time.Now())
	w.see(look("Failed"), time.Now(), time.Now())
	w.see(look("Failed"), time.Now(), time.Now())
	w.start(time.Now())
	w.see(look("Failed"), time.Now(), time.Now())
	w.take()
	var got []string
	for _, s := range w.series[0].Axes["phase"] {
		got = append(got, fmt.Sprintf("%s starts=%d looks=%d", s.State, s.Starts, s.Looks))
	}
	want := []string{"#0 Failed starts=0 looks=3", "#0 Pending starts=1 looks=1", "#0 Failed starts=1 looks=2", "#0 Failed starts=2 looks=1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// stoppedAgent runs once it has been started.
type stoppedAgent struct {
	Agent
	runs bool
}

func (a *stoppedAgent) Running() bool               { return a.runs }
func (a *stoppedAgent) Start(context.Context) error { a.runs = true; return nil }

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
