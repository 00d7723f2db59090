package cri

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// CreateContainer creates a container in a sandbox, without starting it, and returns
// its ID. The sources of its mounts and the directory of its log must exist. Like
// RunSandbox it blocks until the runtime responds, and looks the container up if the
// response is lost.
//
// Errors carry a reason (CreateContainerConfigError for a fault of the pod,
// CreateContainerError for an error of the runtime) and, where it fits, a class.
func (c *Client) CreateContainer(ctx context.Context, req pod.ContainerRequest) (string, error) {
	sandbox, err := spec.Sandbox(c.spec, pod.SandboxRequest{
		Pod: req.Pod, Source: req.Source, Attempt: req.Sandbox.Attempt, StartTime: req.StartTime, Inputs: req.SandboxInputs,
	})
	if err != nil {
		return "", pod.WithReason(pod.ReasonCreateContainerConfigError, err)
	}
	target, err := c.targetContainerID(ctx, req)
	if err != nil {
		return "", pod.WithReason(pod.ReasonCreateContainerConfigError, err)
	}
	config, err := spec.Container(c.spec, req)
	if err != nil {
		return "", pod.WithReason(pod.ReasonCreateContainerConfigError, err)
	}
	if n := config.Linux.SecurityContext.NamespaceOptions; target != "" && n.Pid == runtimeapi.NamespaceMode_CONTAINER {
		n.Pid, n.TargetId = runtimeapi.NamespaceMode_TARGET, target
	}
	r, err := c.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: req.Sandbox.ID, Config: config, SandboxConfig: sandbox,
	})
	id := r.GetContainerId()
	if err == nil {
		c.roster.createdContainer(req.Pod.UID, id, req.Sandbox.ID)
	} else {
		c.roster.createFailed(req.Pod.UID)
		err = mapRedacted("", err, redactValues(req.Inputs.Env.ConfidentialValues()...))
		if mayHaveSucceeded(err) && ctx.Err() == nil {
			id = c.findContainer(ctx, req.Sandbox.ID, config.Metadata)
		}
		if id == "" {
			return "", pod.WithReason(pod.ReasonCreateContainerError, err)
		}
		c.log.Warn("container exists although its creation returned an error", "pod", req.Pod.Namespace+"/"+req.Pod.Name, "container", req.Container.Name, "id", id, "error", err)
	}
	return id, nil
}

// targetContainerID returns the ID of the container that shares its PID namespace with an
// ephemeral container; "" for none.
func (c *Client) targetContainerID(ctx context.Context, req pod.ContainerRequest) (string, error) {
	e := ephemeralNamed(req.Pod, req.Container.Name)
	if e == nil || e.TargetContainerName == "" {
		return "", nil
	}
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{spec.LabelPodUID: string(req.Pod.UID), spec.LabelContainerName: e.TargetContainerName},
	}})
	if err != nil {
		return "", mapError("look for target container "+e.TargetContainerName, err)
	}
	var newest *runtimeapi.Container
	for _, found := range r.Containers {
		if c.owner(req.Pod.UID, found.Annotations) == "" && (newest == nil || found.Metadata.GetAttempt() > newest.Metadata.GetAttempt()) {
			newest = found
		}
	}
	if newest == nil {
		return "", fmt.Errorf("unable to find target container %v", e.TargetContainerName) // upstream's words
	}
	return newest.Id, nil
}

// ephemeralNamed returns the pod's ephemeral container of that name, or nil.
func ephemeralNamed(p *v1.Pod, name string) *v1.EphemeralContainer {
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			return e
		}
	}
	return nil
}

// findContainer returns the container of exactly that name and attempt in the sandbox, or
// "" if there is none that can still be started.
func (c *Client) findContainer(ctx context.Context, sandbox string, meta *runtimeapi.ContainerMetadata) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		PodSandboxId: sandbox,
		State:        &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED},
	}})
	if err != nil {
		return ""
	}
	for _, found := range r.Containers {
		if found.Metadata.GetName() == meta.Name && found.Metadata.GetAttempt() == meta.Attempt {
			return found.Id
		}
	}
	return ""
}

// StartContainer starts a created container. Errors carry the reason
// RunContainerError.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := c.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err != nil {
		return pod.WithReason(pod.ReasonRunContainerError, c.containerError(ctx, id, err))
	}
	return nil
}
