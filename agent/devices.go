package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// noDevices stands for Parts.Devices where there are none.
type noDevices struct{}

func (noDevices) Container(context.Context, *v1.Pod, *v1.Container) (pod.ContainerDevices, error) {
	return pod.ContainerDevices{Ready: true}, nil
}
func (noDevices) Health(pod.UID) map[string][]v1.ResourceStatus { return nil }
func (noDevices) Release(pod.UID)                               {}
func (noDevices) Retain(map[pod.UID]bool)                       {}

// awaitDevices records that a container waits for its devices. It emits an event if the
// wait is for more than an allocation: for the plugin, or for other pods.
func (w *worker) awaitDevices(d *pod.Desired, name string, devices *pod.ContainerDevices) {
	w.memory = w.memory.Awaiting(name, pod.Waiting{Reason: devices.Reason, Message: devices.Message})
	if devices.Reason != pod.ReasonContainerCreating {
		w.recordWarning(d, name, "Failed", "Error: "+devices.Message)
	}
}

// withDevices adds to a container's request what it needs to have its devices.
func withDevices(req *pod.ContainerRequest, devices *pod.ContainerDevices) {
	for name, value := range devices.Env {
		if _, own := req.Inputs.Env.Values[name]; !own {
			req.Inputs.Env.Set(name, value)
		}
	}
	req.Mounts = append(devices.Mounts, req.Mounts...)
	req.Devices = append(req.Devices, devices.Devices...)
	req.Annotations, req.CDI = devices.Annotations, devices.CDI
}

// releaseRemoved releases the devices and claims of pods that were removed while no podd
// ran, or that a killed podd did not finish removing, and forgets the saved probe results
// of those pods.
func (a *Agent) releaseRemoved() {
	keep := make(map[pod.UID]bool)
	for uid := range a.orphans {
		keep[uid] = true
	}
	for uid := range a.desired {
		keep[uid] = true
	}
	a.mu.Lock()
	for uid := range a.workers {
		keep[uid] = true
	}
	a.mu.Unlock()
	a.cfg.Devices.Retain(keep)
	a.cfg.ResourceClaims.Retain(keep)
	a.cfg.Probes.Retain(keep)
}
