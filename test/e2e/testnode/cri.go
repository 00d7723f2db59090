package testnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CRI speaks to a runtime directly: the floor under every agent, and the
// second witness of what an agent did.
type CRI struct {
	conn    *grpc.ClientConn
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
}

// DialCRI makes a client for an endpoint (unix:///path); it does not wait for
// a connection.
func DialCRI(endpoint string) (*CRI, error) {
	// Without a bound the back-off of gRPC would outlast a restart of the runtime.
	conn, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return &CRI{
		conn:    conn,
		Runtime: runtimeapi.NewRuntimeServiceClient(conn),
		Images:  runtimeapi.NewImageServiceClient(conn),
	}, nil
}

// Close ends the connection.
func (c *CRI) Close() error { return c.conn.Close() }

// Ready returns nil when the runtime and its network are ready.
func (c *CRI) Ready(ctx context.Context) error {
	status, err := c.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask the runtime for its status: %w", err)
	}
	for _, cond := range status.GetStatus().GetConditions() {
		// containerd has conditions of its own, about its deprecations.
		if !cond.Status && (cond.Type == runtimeapi.RuntimeReady || cond.Type == runtimeapi.NetworkReady) {
			return fmt.Errorf("%s is false: %s: %s", cond.Type, cond.Reason, cond.Message)
		}
	}
	return nil
}

// Sandboxes lists all sandboxes, whoever made them.
func (c *CRI) Sandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	list, err := c.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	return list.GetItems(), nil
}

// Containers lists all containers.
func (c *CRI) Containers(ctx context.Context) ([]*runtimeapi.Container, error) {
	list, err := c.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return list.GetContainers(), nil
}

// RemoveAll stops and removes every sandbox without grace.
func (c *CRI) RemoveAll(ctx context.Context) error {
	boxes, err := c.Sandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, box := range boxes {
		if _, err := c.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: box.Id}); err != nil {
			errs = append(errs, fmt.Errorf("stop sandbox %s: %w", box.Id, err))
		}
		if _, err := c.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box.Id}); err != nil {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", box.Id, err))
		}
	}
	return errors.Join(errs...)
}

// Exec runs a command in a container and returns its output.
func (c *CRI) Exec(ctx context.Context, container string, command ...string) (string, error) {
	out, err := c.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: command, Timeout: 10})
	if err != nil {
		return "", fmt.Errorf("exec %q: %w", command, err)
	}
	if out.ExitCode != 0 {
		return string(out.Stdout), fmt.Errorf("exec %q: exit code %d: %s", command, out.ExitCode, out.Stderr)
	}
	return string(out.Stdout), nil
}

// Terminate sends a container's first process SIGTERM and waits for its end, ten seconds at
// most, after which it is killed. A kill that is executed in the container may be killed
// itself, with all that the end of the first process kills.
func (c *CRI) Terminate(ctx context.Context, container string) error {
	if _, err := c.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container, Timeout: 10}); err != nil {
		return fmt.Errorf("terminate container %s: %w", container, err)
	}
	return nil
}

// FloorPod is a pod of one container as an agent would ask the runtime for it:
// the same labels, annotations, cgroup parent, log directory, DNS and mounts
// as podd's, so that the runtime has the same work. Its sandbox has the runtime's
// default seccomp profile, as the kubelet's has; podd's has a smaller one (ADR 0029).
type FloorPod struct {
	Name, UID string
	Image     string
	Command   []string
	// HostDir is bind-mounted to /out; Mounts are further mounts.
	HostDir string
	Mounts  []*runtimeapi.Mount
	// CgroupParent is an absolute cgroup path; LogDir a directory to make.
	CgroupParent, LogDir string

	SandboxID, ContainerID string

	sandbox *runtimeapi.PodSandboxConfig
	attempt uint32
}

func (p *FloorPod) sandboxConfig() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: "default", Uid: p.UID},
		Hostname:     p.Name,
		LogDirectory: p.LogDir,
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}},
		Labels: map[string]string{
			"io.kubernetes.pod.name": p.Name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": p.UID,
		},
		Annotations: map[string]string{
			"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": p.UID,
			"kubernetes.io/config.seen": time.Now().Format(time.RFC3339Nano),
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: p.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

// Run makes the three calls: RunPodSandbox, CreateContainer, StartContainer.
func (p *FloorPod) Run(ctx context.Context, c *CRI) error {
	if err := os.MkdirAll(filepath.Join(p.LogDir, "main"), 0o755); err != nil {
		return fmt.Errorf("make the log directory: %w", err)
	}
	p.sandbox = p.sandboxConfig()
	box, err := c.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.sandbox})
	if err != nil {
		return fmt.Errorf("run the sandbox of %s: %w", p.Name, err)
	}
	p.SandboxID = box.PodSandboxId
	return p.StartContainer(ctx, c)
}

// StartContainer makes the last two calls; again for a successor.
func (p *FloorPod) StartContainer(ctx context.Context, c *CRI) error {
	made, err := c.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.SandboxID, SandboxConfig: p.sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: p.attempt},
			Image:    &runtimeapi.ImageSpec{Image: p.Image},
			Command:  p.Command,
			LogPath:  fmt.Sprintf("main/%d.log", p.attempt),
			Mounts:   append([]*runtimeapi.Mount{{HostPath: p.HostDir, ContainerPath: "/out"}}, p.Mounts...),
			Labels: map[string]string{
				"io.kubernetes.container.name": "main", "io.kubernetes.pod.name": p.Name,
				"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": p.UID,
			},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				},
			},
		},
	})
	if err != nil {
		return fmt.Errorf("create the container of %s: %w", p.Name, err)
	}
	p.ContainerID, p.attempt = made.ContainerId, p.attempt+1
	if _, err := c.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return fmt.Errorf("start the container of %s: %w", p.Name, err)
	}
	return nil
}

// StopContainer stops it with a grace period of whole seconds.
func (p *FloorPod) StopContainer(ctx context.Context, c *CRI, grace time.Duration) error {
	_, err := c.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.ContainerID, Timeout: int64(grace.Seconds())})
	if err != nil {
		return fmt.Errorf("stop the container of %s: %w", p.Name, err)
	}
	return nil
}

// Remove stops and removes the sandbox with all that is in it.
func (p *FloorPod) Remove(ctx context.Context, c *CRI) error {
	if p.SandboxID == "" {
		return nil
	}
	if _, err := c.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.SandboxID}); err != nil {
		return fmt.Errorf("stop the sandbox of %s: %w", p.Name, err)
	}
	if _, err := c.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.SandboxID}); err != nil {
		return fmt.Errorf("remove the sandbox of %s: %w", p.Name, err)
	}
	return os.RemoveAll(p.LogDir)
}
