package agent_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// What follows is what must hold of a pod's containers whatever happens.

// note writes down what happened to a pod, for scripts that expect an order.
func (r *fakeRuntime) note(name, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(name, what)
}

func (r *fakeRuntime) noteLocked(name, what string) { r.order[name] = append(r.order[name], what) }

// began follows a start: the container may be one that ends by itself.
func (r *fakeRuntime) began(k *fakeContainer) {
	r.noteLocked(k.sandbox.name, "+"+k.Name)
	delete(r.initDone, k.SandboxID+"/"+k.Name)
	key := string(k.sandbox.uid) + "/" + k.Name
	if last, logged := r.logs[key]; logged && k.RestartCount <= last && !k.sandbox.late {
		r.t.Errorf("%s/%s starts with restart count %d after one with %d", k.sandbox.name, k.Name, k.RestartCount, last)
	}
	r.logs[key] = max(r.logs[key], k.RestartCount)
	if d, dies := r.dies[k.sandbox.name+"/"+k.Name]; dies {
		time.AfterFunc(d.after, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if k.State == pod.ContainerRunning {
				r.end(k, d.code)
			}
		})
	}
}

func countKey(req pod.ContainerRequest) string { return string(req.Pod.UID) + "/" + req.Container.Name }

// count is the request's, or more where logs are left: cri writes none twice.
func (r *fakeRuntime) count(req pod.ContainerRequest) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, logged := r.logs[countKey(req)]; logged {
		return max(req.RestartCount, last+1)
	}
	return req.RestartCount
}

// kept is what the annotations of a container keep of its spec.
func kept(c *v1.Container) *v1.Container {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return nil
	}
	return &v1.Container{Name: c.Name, Ports: c.Ports, Lifecycle: &v1.Lifecycle{PreStop: c.Lifecycle.PreStop}}
}

func gracePeriod(p *v1.Pod) *time.Duration {
	if p.Spec.TerminationGracePeriodSeconds == nil {
		return nil
	}
	d := time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
	return &d
}

// checkTurn: a container starts when the init containers before it have
// succeeded, and its sidecars have begun, in its own sandbox.
func (r *fakeRuntime) checkTurn(k *fakeContainer) {
	for i := range k.pod.Spec.InitContainers {
		before := &k.pod.Spec.InitContainers[i]
		if before.Name == k.Name {
			break
		}
		switch {
		case !pod.IsSidecar(before) && !r.initDone[k.SandboxID+"/"+before.Name]:
			r.t.Errorf("%s/%s starts before init container %s has succeeded", k.sandbox.name, k.Name, before.Name)
		case pod.IsSidecar(before) && !slices.ContainsFunc(r.containers, func(c *fakeContainer) bool {
			return c.Name == before.Name && c.SandboxID == k.SandboxID && c.State != pod.ContainerCreated
		}):
			r.t.Errorf("%s/%s starts before sidecar %s", k.sandbox.name, k.Name, before.Name)
		}
	}
	if isInit(k) && !pod.IsSidecar(k.spec) {
		for _, main := range r.containers {
			if main.SandboxID == k.SandboxID && main.State == pod.ContainerRunning && isMain(main) {
				r.t.Errorf("%s: init container %s starts while %s runs", k.sandbox.name, k.Name, main.Name)
			}
		}
	}
}

// checkStop: a sidecar that is well is not told to end while a main container of
// its pod runs, unless the time for a gentle end is over.
func (r *fakeRuntime) checkStop(k *fakeContainer, grace time.Duration) {
	const leastGrace = 2 * time.Second
	if k == nil || k.State != pod.ContainerRunning || !k.sandbox.Ready || grace <= leastGrace || !isInit(k) || !pod.IsSidecar(k.spec) ||
		r.ill[k.sandbox.name+"/"+k.Name] || r.unordered[k.sandbox.uid] {
		return
	}
	for _, main := range r.containers {
		if main.SandboxID == k.SandboxID && main.State == pod.ContainerRunning && isMain(main) {
			r.t.Errorf("%s: sidecar %s is told to end, with %v, while %s runs", k.sandbox.name, k.Name, grace, main.Name)
		}
	}
}

func isInit(k *fakeContainer) bool { return has(k.pod.Spec.InitContainers, k.Name) }
func isMain(k *fakeContainer) bool { return has(k.pod.Spec.Containers, k.Name) }

func has(list []v1.Container, name string) bool {
	return slices.ContainsFunc(list, func(c v1.Container) bool { return c.Name == name })
}

func (c *conn) UpdateContainer(ctx context.Context, id string, p *v1.Pod, ctr *v1.Container) error {
	return c.do(ctx, "UpdateContainer", p.Name, callTime, func() error {
		k := c.container(id)
		if k == nil || k.State != pod.ContainerRunning {
			return fmt.Errorf("container %s: %w", id, pod.ErrNotFound)
		}
		k.Resources = &pod.ContainerResources{
			CPUShares:          ctr.Resources.Requests.Cpu().MilliValue() * 1024 / 1000,
			MemoryLimitInBytes: ctr.Resources.Limits.Memory().Value(),
		}
		return nil
	})
}
