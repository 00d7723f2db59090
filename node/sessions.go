package node

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cri"
	"podd/internal/atomicfile"
	"podd/internal/pod"
	"podd/server"
)

// RunningContainerID implements server.Runtime.
func (a serverRuntime) RunningContainerID(ctx context.Context, p *v1.Pod, container string) (string, error) {
	seen, err := a.client.Observe(ctx, p.UID)
	if err != nil {
		return "", fmt.Errorf("find container %s of pod %s/%s: %w", container, p.Namespace, p.Name, err)
	}
	for i := range seen.Containers {
		if c := &seen.Containers[i]; c.Name == container && c.State == pod.ContainerRunning {
			return c.ID, nil
		}
	}
	return "", fmt.Errorf("%w: container %s of pod %s/%s is not running", pod.ErrNotFound, container, p.Namespace, p.Name)
}

// Exec implements server.Runtime.
func (a serverRuntime) Exec(ctx context.Context, containerID string, command []string, of server.Streams) (*url.URL, error) {
	return a.client.ExecURL(ctx, containerID, command, cri.SessionStreams(of))
}

// Attach implements server.Runtime.
func (a serverRuntime) Attach(ctx context.Context, containerID string, of server.Streams) (*url.URL, error) {
	return a.client.AttachURL(ctx, containerID, cri.SessionStreams(of))
}

// PortForward implements server.Runtime.
func (a serverRuntime) PortForward(ctx context.Context, p *v1.Pod, ports []int32) (*url.URL, error) {
	seen, err := a.client.Observe(ctx, p.UID)
	if err != nil {
		return nil, fmt.Errorf("find the sandbox of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	for i := range seen.Sandboxes {
		if b := &seen.Sandboxes[i]; b.Ready {
			return a.client.PortForwardURL(ctx, b.ID, ports)
		}
	}
	return nil, fmt.Errorf("%w: pod %s/%s is not running", pod.ErrNotFound, p.Namespace, p.Name)
}

// Run implements server.Runtime.
func (a serverRuntime) Run(ctx context.Context, containerID string, command []string) ([]byte, error) {
	got, err := a.client.Run(ctx, containerID, command)
	if err != nil {
		return nil, err
	}
	if got.ExitCode != 0 {
		return nil, fmt.Errorf("command terminated with exit code %d: %s", got.ExitCode, got.Output)
	}
	return got.Output, nil
}

// Checkpoint implements server.Runtime.
func (a serverRuntime) Checkpoint(ctx context.Context, containerID, file string, timeout time.Duration) error {
	if err := atomicfile.MkdirPrivate(filepath.Dir(file)); err != nil {
		return err
	}
	return a.client.Checkpoint(ctx, containerID, file, timeout)
}
