package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// HookState is the state of a container's postStart hook.
type HookState int

const (
	// HookNone: there is no such hook, or an earlier podd ran it. podd assumes the latter
	// for a container that is running when podd starts.
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

// HookRequest is a lifecycle handler to run.
type HookRequest struct {
	Pod         *v1.Pod
	Container   *v1.Container
	ContainerID string
	Handler     *v1.LifecycleHandler
	// PodIP is the host of httpGet and tcpSocket if the handler names none; empty if the
	// pod has no IP yet.
	PodIP string
}

// ExecResult is the result of a command in a container.
type ExecResult struct {
	ExitCode int32
	// Output is the command's stdout and then its stderr, truncated to the caller's limit.
	Output []byte
}

// ProbeTarget is a running container, with the data that the prober needs.
type ProbeTarget struct {
	// Container is the spec: its probes, ports, and env.
	Container   *v1.Container
	ContainerID string
	StartedAt   time.Time
}
