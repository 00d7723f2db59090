package pod

import (
	"errors"
)

// Classes of errors that callers ask for with errors.Is. They are made from
// foreign codes once, at the edge (cri), never guessed from texts elsewhere.
var (
	// ErrNotFound: the runtime does not know that sandbox, container or image.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable: the runtime does not answer at all (socket gone,
	// connection refused, still starting). Retried when it is back.
	ErrUnavailable = errors.New("the container runtime does not answer")
	// ErrNetworkNotReady: no CNI network is configured, or its plugin says no.
	ErrNetworkNotReady = errors.New("the pod network is not ready")
	// ErrNameReserved: the runtime still holds that name and attempt for a
	// create that it has not finished or did not clean up after. The same
	// attempt is tried again, and adopted when the late create comes true; only
	// when the name stays taken for long is the next attempt taken.
	ErrNameReserved = errors.New("the runtime holds that name for another create")
	// ErrNameLost: as ErrNameReserved, and nobody is at work on the create that
	// holds the name: no later try will get it.
	ErrNameLost = errors.New("the runtime holds that name for a create that it has lost")
	// ErrTimeout: a command in a container did not end in time.
	ErrTimeout = errors.New("timed out")
	// ErrUnimplemented: the runtime answers, but does not have this call.
	ErrUnimplemented = errors.New("the container runtime does not have this call")
)

// ReasonError is an error with the reason that the kubelet's users know
// (CreateContainerConfigError, CreatePodSandboxError, FailedMount …), which
// becomes the container's waiting reason or the event's.
type ReasonError struct {
	Reason string
	Err    error
}

func (e *ReasonError) Error() string { return e.Err.Error() }
func (e *ReasonError) Unwrap() error { return e.Err }

// WithReason wraps err, or returns nil for nil.
func WithReason(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &ReasonError{Reason: reason, Err: err}
}

// ReasonOf returns the outermost reason in err's chain, or otherwise.
func ReasonOf(err error, otherwise string) string {
	if r, ok := errors.AsType[*ReasonError](err); ok {
		return r.Reason
	}
	return otherwise
}

// NameReservedError is ErrNameReserved with the ID for which the runtime holds
// the name.
type NameReservedError struct{ Holder string }

func (e *NameReservedError) Error() string { return ErrNameReserved.Error() + " (" + e.Holder + ")" }
func (e *NameReservedError) Unwrap() error { return ErrNameReserved }
