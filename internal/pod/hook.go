package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// HookState is where a container's postStart hook is.
type HookState int

const (
	// HookNone: there is no such hook, or it was run by an earlier podd. A
	// container that runs when podd starts is taken to have been through it.
	HookNone HookState = iota
	HookRunning
	HookSucceeded
	HookFailed
)

func (s HookState) String() string {
	switch s {
	case HookRunning:
		return "running"
	case HookSucceeded:
		return "succeeded"
	case HookFailed:
		return "failed"
	default:
		return "none"
	}
}

// Hook is the postStart hook of one container, by its ID.
type Hook struct {
	State HookState
	// Message is the failure's, in the kubelet's words; empty otherwise.
	Message string
}

// HookRequest asks for one lifecycle handler to be run.
type HookRequest struct {
	Pod         *v1.Pod
	Container   *v1.Container
	ContainerID string
	Handler     *v1.LifecycleHandler
	// PodIP is where httpGet and tcpSocket go when the handler names no host;
	// empty if there is none yet.
	PodIP string
}

// ExecResult is what came of a command in a container.
type ExecResult struct {
	ExitCode int32
	// Output is what it wrote to stdout and then stderr, cut short by the
	// caller's bound.
	Output []byte
}

// ProbeTarget is a running container with what the prober has to know of it.
type ProbeTarget struct {
	// Container is the spec: its probes, ports, and env.
	Container   *v1.Container
	ContainerID string
	StartedAt   time.Time
}
