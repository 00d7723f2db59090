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

// Runtime answers what podd cannot know before the container runtime has responded for the
// first time. Its methods may be called concurrently.
type Runtime interface {
	// Images returns the images of the runtime, the largest first. RemoveImages removes the image of
	// that name, or, for an empty one, all that nobody uses, and returns what it has removed; the
	// error wraps pod.ErrNotFound if there is no such image.
	Images(ctx context.Context) ([]Image, error)
	RemoveImages(ctx context.Context, name string) (removed []Image, err error)
	// Volumes says where a pod's volumes are on the host, for podd describe. It does not wait
	// for a volume, even if the server of its mount is dead.
	Volumes(*v1.Pod) []Volume
	// Inspect asks the runtime what it was given for a pod, or for one container of it. It
	// returns a value to encode as JSON, without secrets.
	Inspect(ctx context.Context, p *v1.Pod, container string) (any, error)
	// RunningContainerID returns the ID of the running container of that name. The error wraps
	// pod.ErrNotFound if none runs.
	RunningContainerID(ctx context.Context, p *v1.Pod, container string) (id string, err error)
	// Log locates the log of a pod's container, by the container's ID.
	Log(ctx context.Context, p *v1.Pod, containerID string) (podlogs.Log, error)
	// Exec, Attach and PortForward return a URL where the runtime serves a session. The URL
	// works once and for a short while. The sessions are a command in a container, the streams
	// of the container's own process, and connections to ports of a pod.
	Exec(ctx context.Context, containerID string, command []string, of Streams) (*url.URL, error)
	Attach(ctx context.Context, containerID string, of Streams) (*url.URL, error)
	PortForward(ctx context.Context, p *v1.Pod, ports []int32) (*url.URL, error)
	// Run runs a command in a container and returns its output. A command that fails is an
	// error.
	Run(ctx context.Context, containerID string, command []string) ([]byte, error)
	// Checkpoint writes a checkpoint of a container to a file on this node, within timeout; 0
	// means the runtime's own timeout.
	Checkpoint(ctx context.Context, containerID, file string, timeout time.Duration) error
	// Summary returns the statistics of the node and its pods, which /stats/summary encodes as
	// JSON. Without storage it omits everything that must be measured. It does not wait for a
	// volume, even if the server of its mount is dead.
	Summary(ctx context.Context, storage bool) (any, error)
	// ResourceMetrics and CadvisorMetrics write /metrics/resource and /metrics/cadvisor in the
	// Prometheus text format. Once they have begun to write, they return only errors of the
	// writer.
	ResourceMetrics(ctx context.Context, w io.Writer) error
	CadvisorMetrics(ctx context.Context, w io.Writer) error
}

// Attach adds the Runtime. Until then, requests that need it get 503 with the reason. Call it
// at most once, at any time.
func (s *Server) Attach(r Runtime) {
	s.runtime = r
	close(s.attached)
}

var errNotAttached = errors.New("the container runtime has not responded yet: `podd ps` and /readyz?verbose say more")

// attachedRuntime returns the Runtime, or an error before Attach.
func (s *Server) attachedRuntime() (Runtime, error) {
	select {
	case <-s.attached:
		return s.runtime, nil
	default:
		return nil, errNotAttached
	}
}
