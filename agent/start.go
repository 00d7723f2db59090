package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/agent/plan"
	"podd/internal/pod"
)

// start starts containers in order. One that cannot start does not block the others;
// only a runtime that does not respond ends the sync.
func (w *worker) start(ctx context.Context, v *view) (did bool, err error) {
	d, step := v.granted, &v.step
	if len(step.Start) == 0 {
		return false, nil
	}
	if ready, err := w.ensureVolumes(ctx, v); !ready {
		return false, err
	}
	if err := w.ensureNoStrayContainers(d, &v.seen, pod.ReasonCreateContainerError); err != nil {
		for _, st := range step.Start {
			w.delayStart(v, st.Container.Name, "", pod.Waiting{Reason: pod.ReasonCreateContainerError, Message: err.Error()})
		}
		w.recordWarning(d, "", "Failed", "Error: "+err.Error())
		return false, nil
	}
	for _, st := range step.Start {
		if ctx.Err() != nil {
			return did, context.Cause(ctx)
		}
		made, err := w.startContainer(ctx, v, st)
		did = did || made
		if err == nil && made && st.PostStart {
			return true, nil
		}
		if err == nil {
			continue
		}
		if errors.Is(err, pod.ErrUnavailable) || ctx.Err() != nil {
			return did, err
		}
		if w.awaitsAPIServer(v, err) {
			continue
		}
		reason := pod.ReasonOf(err, pod.ReasonCreateContainerError)
		w.containerStarts(d.Pod, st.Container.Name)
		w.containerStartFailed(d.Pod, st.Container.Name, reason)
		w.log.Debug("cannot start container", "container", st.Container.Name, "reason", reason, "error", err)
		w.recordWarning(d, st.Container.Name, "Failed", "Error: "+err.Error())
		w.delayStart(v, st.Container.Name, "", pod.Waiting{Reason: reason, Message: err.Error()})
	}
	return did, nil
}

// ensureNoStrayContainers fails if the pod has a process that the runtime does not know. If a
// runtime could not load a container when it started, for example because the disk was full, it
// does not list that container, which keeps running. A second one beside it would run the pod
// twice. Lost containers of the bundled runtime are stopped soon after it is ready.
func (w *worker) ensureNoStrayContainers(d *pod.Desired, seen *pod.Observed, reason string) error {
	var known []string
	for i := range seen.Sandboxes {
		known = append(known, seen.Sandboxes[i].ID)
	}
	for i := range seen.Containers {
		known = append(known, seen.Containers[i].ID)
	}
	strays, err := w.agent.cfg.Cgroups.LostContainers(d.UID(), known)
	if err != nil {
		return pod.WithReason(reason, fmt.Errorf("look for containers that the runtime has lost: %w", err))
	}
	if len(strays) > 0 {
		return pod.WithReason(reason, fmt.Errorf("the container runtime has lost track of a container of this pod that is still running: "+
			"nothing is started beside it; if it does not exit, kill the processes in %s", strings.Join(strays, ", ")))
	}
	return nil
}

// startContainer starts one container; made says that the runtime was changed.
func (w *worker) startContainer(ctx context.Context, v *view, st plan.Start) (made bool, err error) {
	d := v.granted
	call, cancel := withSlack(ctx)
	defer cancel()
	cfg, name := &w.agent.cfg, st.Container.Name
	id := st.ID
	var created pod.Container
	defer cfg.Volumes.Hold(d.Pod, st.Container)()
	if id == "" {
		if created, err = w.createContainer(call, v, st); err != nil || created.ID == "" {
			return false, err
		}
		id = created.ID
	}
	w.containerStarts(d.Pod, name)
	w.beginStart(d, st, id)
	if err := cfg.Containers.StartContainer(call, id); err != nil {
		if errors.Is(err, pod.ErrUnavailable) || ctx.Err() != nil {
			return true, err // nobody knows what became of the start
		}
		w.startDone(d, name)
		// Most runtimes keep the container as an exited one, which the next sync
		// observes: restart policy and back-off apply as usual. If it is still one
		// that never ran, the failure has a back-off of its own.
		reason := pod.ReasonOf(err, pod.ReasonRunContainerError)
		w.containerStartFailed(d.Pod, name, reason)
		w.log.Debug("cannot start container", "container", name, "reason", reason, "error", err)
		w.recordWarning(d, name, "Failed", "Error: "+err.Error())
		w.delayStart(v, name, id, pod.Waiting{Reason: reason, Message: err.Error()})
		return true, nil
	}
	if created.ID != "" { // a container that was observed has its link
		cfg.Logs.Link(pod.Observed{UID: w.uid, Name: d.Pod.Name, Namespace: d.Pod.Namespace, Containers: []pod.Container{created}})
	}
	cfg.Events.ContainerEvent(d.Pod, name, v1.EventTypeNormal, "Started", "Container started")
	w.log.Info("container started", "container", name, "restarts", st.RestartCount)
	w.starting.usernsUnproven = false
	w.memory = w.memory.Succeeded(name)
	w.reported.warning = ""
	if !st.PostStart {
		w.startDone(d, name)
	} else {
		w.beginPostStart(d, st.Container, id, w.addressOf(v.step.Sandbox))
	}
	return true, nil
}

// createContainer creates a container and returns what is known of it. The ID is empty
// while its image or a device is not available yet.
func (w *worker) createContainer(ctx context.Context, v *view, st plan.Start) (made pod.Container, err error) {
	cfg, d := &w.agent.cfg, v.granted
	image, err := cfg.Images.Ensure(ctx, d.Pod, st.Container)
	if err != nil {
		return made, err
	}
	if !image.Ready {
		w.imageFailed(d.Pod, st.Container.Name, image)
		w.awaitImage(v, st.Container.Name, image)
		return made, nil
	}
	w.pullDone()
	devices, err := cfg.Devices.Container(ctx, d.Pod, st.Container)
	if err != nil {
		return made, pod.WithReason(pod.ReasonCreateContainerConfigError, err)
	}
	if !devices.Ready {
		w.awaitDevices(d, st.Container.Name, &devices)
		return made, nil
	}
	if err := w.withClaims(d, st.Container, &devices); err != nil {
		return made, err
	}
	req, err := w.containerRequest(d, *v.step.Sandbox, st)
	if err != nil {
		return made, pod.WithReason(pod.ReasonCreateContainerConfigError, err)
	}
	withDevices(&req, &devices)
	req.Image, req.ContentHashes = image, w.createdContents(v)
	id, err := cfg.Containers.CreateContainer(ctx, req)
	w.agent.metrics.imageVolumes.observe(req, err)
	if errors.Is(err, pod.ErrNameReserved) {
		w.memory = w.memory.NameTaken(st.Container.Name, int64(st.RestartCount), time.Now())
	}
	if err != nil {
		return made, errors.Join(err, cfg.Files.DiscardContainer(req))
	}
	w.memory = w.memory.Resized(id, d.Pod, st.Container)
	cfg.Events.ContainerEvent(d.Pod, st.Container.Name, v1.EventTypeNormal, "Created", "Container created")
	return pod.Container{
		ID: id, Name: st.Container.Name, SandboxID: v.step.Sandbox.ID, LogPath: req.LogPath, TerminationLog: req.TerminationLog,
	}, nil
}

// containerRequest computes the container's request, in this order: the sandbox's
// inputs, the container's own, with the addresses that this sync observed, the mounts
// and devices of its volumes, and the files that podd creates for it.
func (w *worker) containerRequest(d *pod.Desired, sandbox pod.Sandbox, st plan.Start) (req pod.ContainerRequest, err error) {
	cfg := &w.agent.cfg
	req = pod.ContainerRequest{
		Pod: d.Pod, Container: st.Container, Sandbox: sandbox, Source: d.Source, StartTime: w.startTime, RestartCount: st.RestartCount,
	}
	if req.SandboxInputs, err = w.sandboxInputs(d); err != nil {
		return req, err
	}
	if req.Inputs, err = cfg.Inputs.Container(d.Pod, st.Container, sandbox.IPs); err != nil {
		return req, err
	}
	if req.Mounts, err = cfg.Volumes.Mounts(d.Pod, st.Container, req.Inputs.SubPaths); err != nil {
		return req, err
	}
	if req.Devices, err = cfg.Volumes.Devices(d.Pod, st.Container); err != nil {
		return req, err
	}
	return cfg.Files.PrepareContainer(req)
}

// delayStart delays the next attempt to start a container.
func (w *worker) delayStart(v *view, name, id string, why pod.Waiting) {
	w.memory = w.memory.Failed(name, id, why, time.Now())
	v.wakeBy(w.memory.Failures[name].NotBefore)
}

// awaitImage records that a container waits for its image. Any sync asks again: that
// is a local lookup.
func (w *worker) awaitImage(v *view, name string, image pod.ImageState) {
	if w.starting.pullingSince.IsZero() {
		w.starting.pullingSince = time.Now()
	}
	w.memory = w.memory.Awaiting(name, pod.Waiting{Reason: image.Reason, Message: image.Message})
	v.wakeBy(image.RetryAt)
}

// pullDone ends the time that a pod's start spent on pulls.
func (w *worker) pullDone() {
	if !w.starting.pullingSince.IsZero() {
		w.starting.pulling += time.Since(w.starting.pullingSince)
		w.starting.pullingSince = time.Time{}
	}
}
