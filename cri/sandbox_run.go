package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// RunSandbox creates and starts a pod's sandbox, including its network, and returns its ID.
// Its log directory must exist. It blocks until the runtime responds or ctx ends; the next
// observation finds what the runtime creates after that. If the response is lost, it
// queries the runtime whether the sandbox runs nevertheless.
//
// Errors carry a reason (pod.ReasonError: ConfigPodSandboxError,
// CreatePodSandboxError) and, where it fits, a class: pod.ErrNetworkNotReady,
// pod.ErrUnavailable, pod.ErrNameReserved.
func (c *Client) RunSandbox(ctx context.Context, req pod.SandboxRequest) (string, error) {
	p := req.Pod
	config, err := spec.Sandbox(c.spec, req)
	if err != nil {
		return "", pod.WithReason(pod.ReasonConfigPodSandboxError, err)
	}
	start := time.Now()
	r, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: req.Handler})
	c.metrics.sandboxRun(req.Handler, time.Since(start), err)
	if err == nil {
		c.roster.createdSandbox(p.UID, r.PodSandboxId)
		return r.PodSandboxId, nil
	}
	c.roster.createFailed(p.UID)
	err = mapError("", err)
	if mayHaveSucceeded(err) && ctx.Err() == nil {
		if id := c.findSandbox(ctx, config.Metadata); id != "" {
			c.log.Warn("sandbox exists although its creation returned an error", "pod", p.Namespace+"/"+p.Name, "sandbox", id, "error", err)
			return id, nil
		}
	}
	return "", pod.WithReason(pod.ReasonCreatePodSandboxError, err)
}

// findSandbox returns the ready sandbox of exactly that name and attempt, or "".
func (c *Client) findSandbox(ctx context.Context, meta *runtimeapi.PodSandboxMetadata) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{spec.LabelPodUID: meta.Uid},
	}})
	if err != nil {
		return ""
	}
	for _, s := range r.Items {
		if s.Metadata.GetUid() == meta.Uid && s.Metadata.GetAttempt() == meta.Attempt && c.owner(pod.UID(meta.Uid), s.Annotations) == "" {
			return s.Id
		}
	}
	return ""
}

// StopSandbox stops what still runs in a sandbox and releases its network. A missing
// sandbox counts as stopped.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err := mapError("stop pod sandbox "+short(id), err); err != nil && !gone(err) {
		return err
	}
	return nil
}

// RemoveSandbox removes a stopped sandbox and its containers. A missing sandbox counts as
// removed.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err := mapError("remove pod sandbox "+short(id), err); err != nil && !gone(err) {
		return err
	}
	c.forgetSandbox(id)
	return nil
}

// short returns enough of an ID to find it with crictl.
func short(id string) string {
	if len(id) > 13 {
		return id[:13]
	}
	return id
}
