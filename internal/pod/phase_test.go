package pod_test

import (
	"errors"
	"testing"

	"podd/internal/pod"
)

var phases = []pod.Phase{
	pod.PhasePending, pod.PhaseRunning, pod.PhaseTerminating, pod.PhaseTerminated, pod.PhaseGone,
}

func TestPhaseAdvancesOnlyForward(t *testing.T) {
	type move struct{ from, to pod.Phase }
	legal := map[move]bool{
		{pod.PhasePending, pod.PhaseRunning}:        true,
		{pod.PhasePending, pod.PhaseTerminating}:    true,
		{pod.PhaseRunning, pod.PhaseTerminating}:    true,
		{pod.PhaseTerminating, pod.PhaseTerminated}: true,
		{pod.PhaseTerminated, pod.PhaseGone}:        true,
	}
	outside := []pod.Phase{-1, pod.PhaseGone + 1}
	for _, from := range phases {
		for _, to := range append(outside, phases...) {
			got := from
			err := got.Advance(to)
			if from == to || legal[move{from, to}] {
				if err != nil || got != to {
					t.Errorf("%v to %v: got %v, %v; want %v", from, to, got, err, to)
				}
				continue
			}
			refused, ok := errors.AsType[*pod.PhaseError](err)
			if !ok || *refused != (pod.PhaseError{From: from, To: to}) || got != from {
				t.Errorf("%v to %v: got %v, %v; want to stay with a PhaseError", from, to, got, err)
			}
		}
	}
}

func TestPhaseNamesArePresentAndDistinct(t *testing.T) {
	seen := make(map[string]pod.Phase)
	for _, p := range phases {
		name := p.String()
		if name == "" || name[0] == 'P' && name[1] == 'h' {
			t.Errorf("phase %d has no name: %q", p, name)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("phases %d and %d are both %q", other, p, name)
		}
		seen[name] = p
	}
	if got := (pod.PhaseGone + 1).String(); got != "Phase(5)" {
		t.Errorf("a phase that is none: got %q, want Phase(5)", got)
	}
}

func TestReasonOfFindsTheOutermost(t *testing.T) {
	inner := pod.WithReason("FailedMount", errors.New("no such device"))
	outer := pod.WithReason("CreateContainerConfigError", inner)
	for _, tc := range []struct {
		err  error
		want string
	}{
		{inner, "FailedMount"},
		{outer, "CreateContainerConfigError"},
		{errors.New("plain"), "otherwise"},
		{nil, "otherwise"},
	} {
		if got := pod.ReasonOf(tc.err, "otherwise"); got != tc.want {
			t.Errorf("reason of %v: got %q, want %q", tc.err, got, tc.want)
		}
	}
	if pod.WithReason("FailedMount", nil) != nil {
		t.Error("a reason without an error made an error")
	}
}
