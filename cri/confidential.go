package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/mask"
	"podd/internal/pod"
)

// A runtime's message about a container may contain any part of its configuration: if a
// program cannot be started, the error contains the command line, into which a Secret's
// value may have been expanded. Messages end up in statuses, events, logs and on the port
// that everybody may read. They are masked here, where they enter podd. The values to mask
// come from the runtime itself: those of the variables that AnnotationConfidential names.
// The runtime still knows them after a restart of podd, and after the Secret was changed.

// hiddenMessage replaces a message about a container with confidential values that the
// runtime does not report.
const hiddenMessage = mask.Value + ": the container has values of Secrets, and the runtime did not say which, so its message is not shown: see the runtime's log"

// redaction removes confidential values from a runtime's message about a container.
type redaction func(message string) string

// apply redacts a message. It searches a bounded part and drops the rest. The cut may fall within
// a value, so it also removes the few bytes before the cut that could be the beginning of one.
func (r redaction) apply(message string) string {
	if len(message) <= 2*maxMessage {
		return r(message)
	}
	message = r(message[:2*maxMessage])
	return strings.ToValidUTF8(message[:max(len(message)-mask.MinPartLength, 0)], "")
}

func redactValues(values ...string) redaction { return mask.NewValues(values...).Mask }

func redactAll(message string) string {
	if message == "" {
		return ""
	}
	return hiddenMessage
}

// containerError is mapError for a call about an existing container.
func (c *Client) containerError(ctx context.Context, id string, err error) error {
	switch status.Code(err) {
	case codes.OK, codes.NotFound, codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Unimplemented:
		return mapError("", err) // not about what the container is
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	return mapRedacted("", err, c.redactionOf(ctx, id))
}

// redactionOf asks the runtime which values of a container must not be shown.
func (c *Client) redactionOf(ctx context.Context, id string) redaction {
	r, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return redactAll
	}
	names := r.GetStatus().GetAnnotations()[pod.AnnotationConfidential]
	if names == "" {
		return redactValues()
	}
	_, spec, err := verboseInfo(r)
	if err != nil || spec == nil || spec.Process == nil {
		return redactAll
	}
	var values []string
	for _, entry := range spec.Process.Env {
		if name, value, _ := strings.Cut(entry, "="); pod.IsConfidential(names, name) {
			values = append(values, value)
		}
	}
	return redactValues(values...)
}

// redactedMessage returns the runtime's message about an exited container, without
// confidential values.
func (c *Client) redactedMessage(ctx context.Context, st *runtimeapi.ContainerStatus) string {
	if st.Message == "" || st.Annotations[pod.AnnotationConfidential] == "" {
		return st.Message
	}
	return c.redactionOf(ctx, st.Id).apply(st.Message)
}
