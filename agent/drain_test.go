package agent_test

import (
	"context"
	"testing"

	"podd/internal/pod"
)

// TestADrainEndsAllPodsAndStartsThemAgainWhenItIsLifted: also one that comes meanwhile
// does not start before, and one that goes meanwhile does not start again.
func TestADrainEndsAllPodsAndStartsThemAgainWhenItIsLifted(t *testing.T) {
	m := startMany(t)
	pods := []*pod.Desired{manyPod(1), manyPod(2), manyPod(3)}
	for _, d := range pods[:2] {
		m.add(d)
	}
	m.await(t, "two pods run", patience, func() bool { return m.running() == 2 })
	ctx, lift := context.WithCancel(t.Context())
	defer lift()
	<-m.agent.Drain(ctx)
	if n := len(m.srv.Sandboxes()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	m.add(pods[2])
	m.drop(pods[0])
	second, alsoLift := context.WithCancel(t.Context())
	defer alsoLift()
	<-m.agent.Drain(second) // after both updates
	if n := len(m.srv.Sandboxes()); n != 0 {
		t.Errorf("%d pods started in spite of it", n)
	}
	lift()
	<-m.agent.Drain(second) // the sync loop has heard of that
	if n := len(m.srv.Sandboxes()); n != 0 {
		t.Errorf("%d pods started though another drain goes on", n)
	}
	alsoLift()
	m.await(t, "the two that are desired run", patience, func() bool {
		boxes := m.srv.Sandboxes()
		return m.running() == 2 && len(boxes) == 2 && boxes[0].UID != string(pods[0].UID()) && boxes[1].UID != string(pods[0].UID())
	})
}

// TestADrainEndsWhatAnEarlierPoddStarted, whether or not it is still desired.
func TestADrainEndsWhatAnEarlierPoddStarted(t *testing.T) {
	m := startMany(t)
	m.add(manyPod(1))
	m.add(manyPod(2))
	m.await(t, "two pods run", patience, func() bool { return m.running() == 2 })
	m.stop()
	m.updates = make(chan pod.Update)
	m.run(t)
	ctx, lift := context.WithCancel(t.Context())
	defer lift()
	<-m.agent.Drain(ctx) // before any source is ready
	m.nothingLeft(t)
	m.add(manyPod(2))
	lift()
	m.runsOnce(t, manyPod(2))
}
