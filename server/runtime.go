package server

import (
	"context"
	"errors"
	"io"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/podlogs"
)

// Runtime responds to what cannot be known before the container runtime has responded
// for the first time. Its methods may be called concurrently.
type Runtime interface {
	// Volumes are where those of a pod are on the host, for podd describe. It does not
	// wait for a volume, even if the server of its mount is dead.
	Volumes(*v1.Pod) []Volume
	// Inspect asks the runtime what it was given for a pod, or for one container of it,
	// and returns what is to be encoded as JSON, without secrets.
	Inspect(ctx context.Context, p *v1.Pod, container string) (any, error)
	// Running returns the ID of the container of that name that runs; the error wraps
	// pod.ErrNotFound if none does.
	Running(ctx context.Context, p *v1.Pod, container string) (id string, err error)
	// Log returns where the log of a pod's container is, by the container's ID.
	Log(ctx context.Context, p *v1.Pod, containerID string) (podlogs.Log, error)
	// Exec, Attach and PortForward return where the runtime serves a session, once and for
	// a short while: a command in a container, the streams of its own process,
	// connections to ports of a pod.
	Exec(ctx context.Context, containerID string, command []string, of Streams) (*url.URL, error)
	Attach(ctx context.Context, containerID string, of Streams) (*url.URL, error)
	PortForward(ctx context.Context, p *v1.Pod, ports []int32) (*url.URL, error)
	// Run runs a command in a container and returns what it wrote; a command that fails
	// is an error.
	Run(ctx context.Context, containerID string, command []string) ([]byte, error)
	// Checkpoint writes a checkpoint of a container to a file on this node, within a time;
	// 0 for the runtime's own.
	Checkpoint(ctx context.Context, containerID, file string, timeout time.Duration) error
	// Summary returns what /stats/summary encodes as JSON: statistics of the node and its
	// pods; without storage it omits whatever must be measured. It does not wait for a
	// volume, even if the server of its mount is dead.
	Summary(ctx context.Context, storage bool) (any, error)
	// ResourceMetrics and CadvisorMetrics write /metrics/resource and /metrics/cadvisor in
	// the text format of Prometheus. Having begun to write they return only errors of the
	// writer.
	ResourceMetrics(ctx context.Context, w io.Writer) error
	CadvisorMetrics(ctx context.Context, w io.Writer) error
}

// Attach adds the Runtime. Until then, requests that need it get 503 with the reason.
// To be called once at most, at any time.
func (s *Server) Attach(r Runtime) {
	s.runtime = r
	close(s.attached)
}

var errNotAttached = errors.New("the container runtime has not responded yet: `podd ps` and /readyz?verbose say more")

// attachedRuntime fails before Attach.
func (s *Server) attachedRuntime() (Runtime, error) {
	select {
	case <-s.attached:
		return s.runtime, nil
	default:
		return nil, errNotAttached
	}
}
