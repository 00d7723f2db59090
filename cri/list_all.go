package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
)

// StopTarget is a sandbox or a running container, regardless of who created it.
type StopTarget struct {
	ID string
	// Pod is the pod's name, Container the container's; empty for a sandbox.
	Pod, Container string
	// Sandbox is the container's sandbox, or the sandbox itself.
	Sandbox string
	// GracePeriod is the time between a container's stop signal and SIGKILL, from its
	// annotations; 30 s, the API's default, if they have none.
	GracePeriod time.Duration
}

// ListAll lists all sandboxes and all running containers that the runtime has,
// podd's or not, for stopping the runtime.
func (c *Client) ListAll(ctx context.Context) (sandboxes, running []StopTarget, err error) {
	boxes, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, nil, mapError("list pod sandboxes", err)
	}
	for _, b := range boxes.Items {
		sandboxes = append(sandboxes, StopTarget{ID: b.Id, Sandbox: b.Id, Pod: b.Metadata.GetName()})
	}
	containers, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, nil, mapError("list running containers", err)
	}
	for _, k := range containers.Containers {
		t := StopTarget{
			ID: k.Id, Sandbox: k.PodSandboxId, Pod: k.Labels[spec.LabelPodName], Container: k.Metadata.GetName(),
			GracePeriod: 30 * time.Second,
		}
		if grace := gracePeriod(k.Annotations); grace != nil {
			t.GracePeriod = *grace
		}
		running = append(running, t)
	}
	return sandboxes, running, nil
}
