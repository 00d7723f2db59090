package cri

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podd/internal/pod"
	"podd/internal/text"
)

// maxMessage bounds how much of a runtime's message podd keeps: messages end up in statuses
// and events, and some runtimes append whole logs.
const maxMessage = 4096

// callError is a failed call: the runtime's own message, and the class that callers
// check with errors.Is.
type callError struct {
	call    string
	code    codes.Code
	message string
	class   error // nil where no class fits
}

func (e *callError) Error() string {
	switch {
	case e.message == "":
		return strings.TrimPrefix(e.call+": "+e.code.String(), ": ")
	case e.call == "":
		return e.message
	}
	return e.call + ": " + e.message
}

func (e *callError) Unwrap() error { return e.class }

// mapError is the one place that maps the runtime's codes and messages to podd's errors.
// call says what was tried; it is empty if the runtime's own message becomes a status
// message, as in the kubelet.
func mapError(call string, err error) error { return mapRedacted(call, err, nil) }

// mapRedacted is mapError for a message that may have confidential values.
func mapRedacted(call string, err error, redact redaction) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		code := codes.Unknown
		switch {
		case errors.Is(err, context.Canceled):
			code = codes.Canceled
		case errors.Is(err, context.DeadlineExceeded):
			code = codes.DeadlineExceeded
		}
		st = status.New(code, err.Error())
	}
	msg := st.Message()
	class := classOf(st.Code(), msg[:min(len(msg), maxMessage)])
	if redact != nil {
		msg = redact.apply(msg)
	}
	return &callError{call: call, code: st.Code(), message: text.Truncate(msg, maxMessage), class: class}
}

// networkTexts are the messages of runtimes for a missing pod network, which has no
// code: containerd's, CRI-O's (two), the kubelet's own condition.
var networkTexts = []string{
	"cni plugin not initialized",
	"No CNI configuration file",
	"no CNI configuration file",
	"No networks found in",
	"no networks found in",
	"NetworkPluginNotReady",
}

func classOf(code codes.Code, msg string) error {
	for _, text := range networkTexts {
		if strings.Contains(msg, text) {
			return pod.ErrNetworkNotReady
		}
	}
	// CRI's own message for it (k8s.io/cri-api/pkg/errors), whatever the code: a
	// missing file of the image does not mean that the sandbox is missing.
	if strings.Contains(msg, "ImageVolumeMountFailed") {
		return pod.ErrImageVolume
	}
	// containerd and CRI-O return Unknown for a name that is taken: `name
	// "x_ns_uid_0" is reserved for "id"` (containerd#4604).
	if _, rest, found := strings.Cut(msg, "is reserved for "); found {
		holder, _, _ := strings.Cut(strings.TrimPrefix(rest, `"`), `"`)
		return &pod.NameReservedError{Holder: holder}
	}
	switch code {
	case codes.NotFound:
		return pod.ErrNotFound
	case codes.Unavailable:
		return pod.ErrUnavailable
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Canceled:
		return context.Canceled
	case codes.Unimplemented:
		return pod.ErrUnimplemented
	default:
		return nil
	}
}

// mayHaveSucceeded says that a failed call may have taken effect all the same.
func mayHaveSucceeded(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, pod.ErrUnavailable) || errors.Is(err, pod.ErrNameReserved)
}

// gone says that there is nothing left to stop or remove.
func gone(err error) bool { return errors.Is(err, pod.ErrNotFound) }
