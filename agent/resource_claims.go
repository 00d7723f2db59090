package agent

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// ResourceClaims prepares and unprepares the ResourceClaims of pods (package dra). If a
// call fails for lack of a driver, the driver wakes the pod when it registers.
type ResourceClaims interface {
	// Prepare is called before each sandbox of a pod. It blocks while drivers work, or until
	// ctx ends.
	Prepare(ctx context.Context, p *v1.Pod) error
	// Container returns the names of the CDI devices that a container gets.
	Container(p *v1.Pod, c *v1.Container) (cdi []string, err error)
	// Health is that of a pod's devices, by container; nil for none. A change wakes the pod.
	Health(p *v1.Pod) map[string][]v1.ResourceStatus
	// HasPrepared reports whether a claim of the pod must still be unprepared.
	HasPrepared(uid pod.UID) bool
	// Unprepare is called once no container or sandbox of the pod runs any more. It is
	// idempotent, and blocks while drivers work, or until ctx ends.
	Unprepare(ctx context.Context, uid pod.UID) error
	// Drop is Unprepare for a pod without a worker. It does not block.
	Drop(uid pod.UID)
	// Retain drops the pods that are not named. It does not block.
	Retain(keep map[pod.UID]bool)
}

// NoResourceClaims serves a node without a cluster, where no pod has a claim.
var NoResourceClaims ResourceClaims = noResourceClaims{}

type noResourceClaims struct{}

func (noResourceClaims) Prepare(context.Context, *v1.Pod) error             { return nil }
func (noResourceClaims) Container(*v1.Pod, *v1.Container) ([]string, error) { return nil, nil }
func (noResourceClaims) Health(*v1.Pod) map[string][]v1.ResourceStatus      { return nil }
func (noResourceClaims) HasPrepared(pod.UID) bool                           { return false }
func (noResourceClaims) Unprepare(context.Context, pod.UID) error           { return nil }
func (noResourceClaims) Drop(pod.UID)                                       {}
func (noResourceClaims) Retain(map[pod.UID]bool)                            {}

// prepareClaims has the claims of a pod prepared for its next sandbox.
func (w *worker) prepareClaims(ctx context.Context, v *view) error {
	err := w.agent.cfg.ResourceClaims.Prepare(ctx, v.granted.Pod)
	if err != nil && ctx.Err() == nil {
		w.recordWarning(v.granted, "", "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: "+err.Error())
		return recordedError{err}
	}
	return err
}

// unprepareClaims unprepares the claims of a pod that has ended, once its containers and its
// sandbox have stopped. The worker reports nothing until that has succeeded: the report
// would be the pod's last status, and the cluster would then free the claims and give their
// devices to other pods.
func (w *worker) unprepareClaims(ctx context.Context, v *view) error {
	ended := (v.step.Completed || v.in.Kill != nil) && !anyMayRun(&v.seen)
	w.completion.claimsPrepared = ended && w.agent.cfg.ResourceClaims.HasPrepared(w.uid)
	if !w.completion.claimsPrepared || len(v.step.Stop)+len(v.step.StopSandboxes) > 0 {
		return nil
	}
	err := w.agent.cfg.ResourceClaims.Unprepare(ctx, w.uid)
	w.completion.claimsPrepared = err != nil
	return err
}

// anyMayRun says that a container of a pod runs, or may do so for all the runtime knows.
func anyMayRun(seen *pod.Observed) bool {
	for i := range seen.Containers {
		if s := seen.Containers[i].State; s == pod.ContainerRunning || s == pod.ContainerUnknown {
			return true
		}
	}
	return false
}

// withClaims adds to a container's devices those that it has by claims.
func (w *worker) withClaims(d *pod.Desired, c *v1.Container, devices *pod.ContainerDevices) error {
	more, err := w.agent.cfg.ResourceClaims.Container(d.Pod, c)
	if err != nil {
		return pod.WithReason(pod.ReasonCreateContainerConfigError, err)
	}
	devices.CDI = append(devices.CDI, more...)
	return nil
}

// deviceHealth is the health of all devices of a pod, by container; nil for none.
func (w *worker) deviceHealth(p *v1.Pod) map[string][]v1.ResourceStatus {
	all, claimed := w.agent.cfg.Devices.Health(w.uid), w.agent.cfg.ResourceClaims.Health(p)
	if len(all) == 0 {
		return claimed
	}
	all = maps.Clone(all)
	for container, more := range claimed {
		all[container] = append(all[container], more...)
	}
	return all
}
