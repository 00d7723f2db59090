package pod

import "fmt"

// Phase is the phase of a pod's worker. It only ever moves forward:
//
//	Pending ─► Running ─► Terminating ─► Terminated ─► Gone
//	   └──────────────────────▲
//
// It is the worker's phase, not the API's PodPhase, which status computes.
type Phase int

const (
	// PhasePending: nothing has been created for the pod on this node yet.
	PhasePending Phase = iota
	// PhaseRunning: the pod is being started, is running, or has completed
	// (Succeeded, Failed) and is still desired.
	PhaseRunning
	// PhaseTerminating: containers are being stopped; nothing is started any more.
	PhaseTerminating
	// PhaseTerminated: no container runs; the rest of the pod is being removed.
	PhaseTerminated
	// PhaseGone: this node has removed everything of the pod.
	PhaseGone
)

var phaseNames = [...]string{"Pending", "Running", "Terminating", "Terminated", "Gone"}

func (p Phase) String() string {
	if p < 0 || int(p) >= len(phaseNames) {
		return fmt.Sprintf("Phase(%d)", int(p))
	}
	return phaseNames[p]
}

// PhaseError is an invalid transition.
type PhaseError struct{ From, To Phase }

func (e *PhaseError) Error() string {
	return fmt.Sprintf("a pod cannot go from %s to %s", e.From, e.To)
}

// Advance moves to next, or returns a *PhaseError and leaves the phase unchanged.
// Staying is allowed, going back never; the one shortcut is from Pending to
// Terminating, for a pod that terminates before anything was created.
func (p *Phase) Advance(next Phase) error {
	switch {
	case next == *p:
		return nil
	case next == *p+1 && next <= PhaseGone:
	case *p == PhasePending && next == PhaseTerminating:
	default:
		return &PhaseError{From: *p, To: next}
	}
	*p = next
	return nil
}
