package cri

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Handler returns the runtime's handler for a pod of a manifest, "" for the default one.
// There are no RuntimeClass objects: a pod's runtimeClassName is the name of a handler. It
// queries the runtime's handlers each time, because the runtime may have been restarted
// with another configuration. Only pods with a runtimeClassName or a user namespace need
// that call. The error for a missing handler has the reason CreatePodSandboxError.
func (c *Client) Handler(ctx context.Context, p *v1.Pod) (string, error) {
	var name string
	if p.Spec.RuntimeClassName != nil {
		name = *p.Spec.RuntimeClassName
	}
	if name == "" && !hasUserNamespace(p) {
		return "", nil
	}
	status, err := c.Status(ctx)
	if err == nil {
		err = status.checkHandler(name, hasUserNamespace(p))
	}
	if err != nil {
		return "", pod.WithReason(pod.ReasonCreatePodSandboxError, err)
	}
	return name, nil
}

// HandlerOfClass returns the runtime's handler for a pod with a RuntimeClass that names
// handler. As with a kubelet, the runtime checks that it has the handler when the sandbox
// is created.
func (c *Client) HandlerOfClass(ctx context.Context, p *v1.Pod, handler string) (string, error) {
	if !hasUserNamespace(p) {
		return handler, nil
	}
	status, err := c.Status(ctx)
	if err == nil {
		if h, _ := status.handler(handler); !h.UserNamespaces {
			err = fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
		}
	}
	if err != nil {
		return "", pod.WithReason(pod.ReasonCreatePodSandboxError, err)
	}
	return handler, nil
}

// checkHandler returns nil if the handler of that name exists and, for a pod with a user
// namespace, supports those.
func (s Status) checkHandler(name string, users bool) error {
	handler, known := s.handler(name)
	if !known && len(s.Handlers) > 0 {
		return fmt.Errorf("RuntimeClass %q not found: on a node without an apiserver it names a handler of the container runtime, which has %s", name, s.handlerNames())
	}
	if users && !handler.UserNamespaces {
		if name != "" {
			return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", name)
		}
		return fmt.Errorf("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return nil
}

func (s Status) handler(name string) (Handler, bool) {
	for _, h := range s.Handlers {
		if h.Name == name {
			return h, true
		}
	}
	return Handler{}, false
}

// handlerNames lists the handlers that a pod can name.
func (s Status) handlerNames() string {
	var names []string
	for _, h := range s.Handlers {
		if h.Name != "" {
			names = append(names, fmt.Sprintf("%q", h.Name))
		}
	}
	if len(names) == 0 {
		return "only the default one, which has no name"
	}
	return strings.Join(names, ", ")
}

// hasUserNamespace says that the pod has a user namespace.
func hasUserNamespace(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }
