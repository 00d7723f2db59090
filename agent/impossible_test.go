package agent

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// shown takes what is shown of a pod.
type shown struct {
	quiet
	StatusSink
	events  []string
	reports []pod.Report
}

func (s *shown) Event(_ *v1.Pod, _, reason, message string) {
	s.events = append(s.events, reason+": "+message)
}
func (s *shown) Report(r pod.Report) { s.reports = append(s.reports, r) }

// TestAnImpossibleStateOfOnePodIsShownForItAndEndsNothing: a panic would end podd, and with it
// the probes and restarts of every other pod.
func TestAnImpossibleStateOfOnePodIsShownForItAndEndsNothing(t *testing.T) {
	for _, did := range []bool{false, true} {
		w, v := newWorld(t).podOf()
		s := &shown{}
		w.agent.cfg.Events, w.agent.cfg.Status = s, s
		w.phase, v.step.Phase = pod.PhaseTerminating, pod.PhaseRunning // from going to coming
		for range 2 {
			wakeAt, again := w.applied(t.Context(), v, did, nil)
			if again || !wakeAt.After(time.Now()) {
				t.Errorf("it is to be synced at %v (at once: %v), want after a back-off", wakeAt, again)
			}
		}
		if w.phase != pod.PhaseTerminating || w.lastSync.failures != 2 {
			t.Errorf("got phase %v after %d failed syncs", w.phase, w.lastSync.failures)
		}
		if len(s.events) != 1 || !strings.Contains(s.events[0], "FailedSync: ") || !strings.Contains(s.events[0], "impossible") {
			t.Errorf("got the events %q, want one of the pod", s.events)
		}
		if len(s.reports) == 0 {
			t.Error("nothing is reported of the pod")
		}
		v.step.Phase = pod.PhaseTerminated // as after an order to end
		if _, _ = w.applied(t.Context(), v, false, nil); w.phase != pod.PhaseTerminated || w.lastSync.failures != 0 {
			t.Errorf("it does not go on: phase %v after %d failed syncs", w.phase, w.lastSync.failures)
		}
	}
}
