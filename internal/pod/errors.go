package pod

import (
	"errors"
)

// Classes of errors for errors.Is. They are converted from foreign codes once, at the
// edge (cri), and never guessed from messages elsewhere.
var (
	// ErrNotFound: the runtime does not know that sandbox, container or image.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable: the runtime does not respond at all (socket gone, connection
	// refused, still starting). Retried when it is back.
	ErrUnavailable = errors.New("the container runtime does not respond")
	// ErrNetworkNotReady: no CNI network is configured, or its plugin is not ready.
	ErrNetworkNotReady = errors.New("the pod network is not ready")
	// ErrNameReserved: the runtime has the name and attempt reserved for a create
	// that is in progress or was not cleaned up. The same attempt is retried, and
	// adopted if that create succeeds late; only if the name stays reserved for long
	// is the next attempt used.
	ErrNameReserved = errors.New("the runtime reserves that name for another create")
	// ErrNameLost: as ErrNameReserved, but the create that reserved the name is not
	// in progress any more: no retry will succeed.
	ErrNameLost = errors.New("the runtime reserves that name for a create that it has lost")
	// ErrImageVolume: the runtime could not mount an image volume of a container.
	ErrImageVolume = errors.New("an image volume cannot be mounted")
	// ErrTimeout: a command in a container did not exit in time.
	ErrTimeout = errors.New("timed out")
	// ErrAwaited: the apiserver has been asked for what is missing, and has not answered
	// yet. The pod is woken when it has.
	ErrAwaited = errors.New("the apiserver has not answered yet")
	// ErrUnknown: an apiserver would have to say, and cannot be asked; see Unknown.
	ErrUnknown = errors.New("the apiserver does not answer")
	// ErrAttachLimit: the cluster cannot attach a volume to this node, which has no room
	// for another one of its driver.
	ErrAttachLimit = errors.New("the node has no room for another volume of this driver")
	// ErrUnimplemented: the runtime responds, but does not have this call.
	ErrUnimplemented = errors.New("the container runtime does not have this call")
)

// Unknown gives an error the class ErrUnknown, and leaves its text.
func Unknown(err error) error { return unknownError{err} }

type unknownError struct{ error }

func (e unknownError) Unwrap() error        { return e.error }
func (e unknownError) Is(target error) bool { return target == ErrUnknown }

// ReasonError is an error with the kubelet's reason (CreateContainerConfigError,
// CreatePodSandboxError, FailedMount …), which becomes the container's waiting reason
// or the event's.
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

// NameReservedError is ErrNameReserved with the ID for which the runtime has reserved
// the name.
type NameReservedError struct{ Holder string }

func (e *NameReservedError) Error() string { return ErrNameReserved.Error() + " (" + e.Holder + ")" }
func (e *NameReservedError) Unwrap() error { return ErrNameReserved }

// IsAwaited says whether everything that is wrong is an ErrAwaited: a moment later
// nothing may be wrong. Joined errors and aggregates count as awaited if all of theirs are.
func IsAwaited(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case interface{ Unwrap() []error }:
		return allAwaited(e.Unwrap())
	case interface{ Errors() []error }: // of apimachinery
		return allAwaited(e.Errors())
	case interface{ Unwrap() error }:
		return IsAwaited(e.Unwrap())
	}
	return err == ErrAwaited
}

func allAwaited(errs []error) bool {
	for _, err := range errs {
		if !IsAwaited(err) {
			return false
		}
	}
	return len(errs) > 0
}
