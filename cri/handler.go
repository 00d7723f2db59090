package cri

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// handlerFor is the runtime's handler for a pod, "" for the default one. There
// are no RuntimeClass objects on a node of its own: a pod's runtimeClassName is
// the name of a handler. The runtime is asked what it has each time, by a call
// that only such pods, and those with a user namespace, need: it may have been
// restarted with another configuration.
func (c *Client) handlerFor(ctx context.Context, p *v1.Pod) (string, error) {
	var name string
	if p.Spec.RuntimeClassName != nil {
		name = *p.Spec.RuntimeClassName
	}
	if name == "" && !ownUsers(p) {
		return "", nil
	}
	s, err := c.Status(ctx)
	if err != nil {
		return "", err
	}
	handler, known := s.handler(name)
	if !known && len(s.Handlers) > 0 {
		return "", fmt.Errorf("RuntimeClass %q not found: on a node without an apiserver it names a handler of the container runtime, which has %s", name, s.handlerNames())
	}
	if ownUsers(p) && !handler.UserNamespaces {
		if name != "" {
			return "", fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", name)
		}
		return "", fmt.Errorf("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return name, nil
}

func (s Status) handler(name string) (Handler, bool) {
	for _, h := range s.Handlers {
		if h.Name == name {
			return h, true
		}
	}
	return Handler{}, false
}

// handlerNames are those that a pod can name.
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

// ownUsers says that the pod wants a user namespace.
func ownUsers(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

// userNamespace is the node's own, or the pod's with its range of IDs.
func (c *Client) userNamespace(p *v1.Pod) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(p) {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	}
	if c.opts.UserNamespace == nil {
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`: this node has no user and group IDs for pods")
	}
	first, length, err := c.opts.UserNamespace(p.UID)
	if err != nil {
		return nil, err
	}
	ids := []*runtimeapi.IDMapping{{HostId: first, ContainerId: 0, Length: length}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}
