package pod

import (
	"errors"
)

// The classes of errors, for errors.Is. cri, at the edge, converts foreign codes to them
// once; no other package guesses them from messages.
var (
	// ErrNotFound: the runtime does not know that sandbox, container or image.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable: the runtime does not respond at all (socket gone, connection
	// refused, still starting). Retried when it is back.
	ErrUnavailable = errors.New("the container runtime does not respond")
	// ErrNetworkNotReady: no CNI network is configured, or its plugin is not ready.
	ErrNetworkNotReady = errors.New("the pod network is not ready")
	// ErrNameReserved: the runtime has reserved the name and attempt for a create that is
	// in progress or was not cleaned up. podd retries the same attempt, and adopts its
	// result if that create succeeds late. It uses the next attempt only if the name stays
	// reserved for long.
	ErrNameReserved = errors.New("the runtime reserves that name for another create")
	// ErrNameLost: like ErrNameReserved, but the create that reserved the name is no longer
	// in progress: no retry will succeed.
	ErrNameLost = errors.New("the runtime reserves that name for a create that it has lost")
	// ErrImageVolume: the runtime could not mount an image volume of a container.
	ErrImageVolume = errors.New("an image volume cannot be mounted")
	// ErrTimeout: a command in a container did not exit in time.
	ErrTimeout = errors.New("timed out")
	// ErrObjectPending: podd has asked the apiserver for the missing object, and it has not
	// answered yet. Its answer wakes the pod.
	ErrObjectPending = errors.New("the apiserver has not answered yet")
	// ErrAPIServerUnavailable: only an apiserver knows the object, and it cannot be asked;
	// see APIServerUnavailable.
	ErrAPIServerUnavailable = errors.New("the apiserver does not answer")
	// ErrAttachLimit: the cluster cannot attach a volume to this node, which has no room
	// for another volume of this driver.
	ErrAttachLimit = errors.New("the node has no room for another volume of this driver")
	// ErrUnimplemented: the runtime responds, but does not have this call.
	ErrUnimplemented = errors.New("the container runtime does not have this call")
)

// APIServerUnavailable gives an error the class ErrAPIServerUnavailable, and leaves its text.
func APIServerUnavailable(err error) error { return apiServerUnavailableError{err} }

type apiServerUnavailableError struct{ error }

func (e apiServerUnavailableError) Unwrap() error        { return e.error }
func (e apiServerUnavailableError) Is(target error) bool { return target == ErrAPIServerUnavailable }

// ReasonError is an error with the kubelet's reason (CreateContainerConfigError,
// CreatePodSandboxError, FailedMount …). The reason becomes the container's waiting reason
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

// NameReservedError is ErrNameReserved with the ID of the holder, for which the runtime has
// reserved the name.
type NameReservedError struct{ Holder string }

func (e *NameReservedError) Error() string { return ErrNameReserved.Error() + " (" + e.Holder + ")" }
func (e *NameReservedError) Unwrap() error { return ErrNameReserved }

// IsObjectPending says whether every part of an error is an ErrObjectPending, so that a
// moment later nothing may be wrong. Joined errors and aggregates count if all their parts
// do.
func IsObjectPending(err error) bool { return allOf(err, ErrObjectPending) }

// IsAPIServerUnavailable says whether every part of an error is an ErrAPIServerUnavailable or an
// ErrObjectPending, so that nothing is known to be wrong but that the apiserver cannot be asked.
func IsAPIServerUnavailable(err error) bool {
	return allOf(err, ErrAPIServerUnavailable, ErrObjectPending)
}

// allOf says whether every part of an error is of one of the classes.
func allOf(err error, classes ...error) bool {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return allPartsOf(e.Unwrap(), classes)
	case interface{ Errors() []error }: // of apimachinery
		return allPartsOf(e.Errors(), classes)
	}
	for _, class := range classes {
		if of, ok := err.(interface{ Is(error) bool }); err == class || ok && of.Is(class) {
			return true
		}
	}
	inner, ok := err.(interface{ Unwrap() error })
	return ok && allOf(inner.Unwrap(), classes...)
}

func allPartsOf(errs, classes []error) bool {
	for _, err := range errs {
		if !allOf(err, classes...) {
			return false
		}
	}
	return len(errs) > 0
}
