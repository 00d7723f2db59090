package agent_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/cri/critest/state"
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
	r.noteLocked(k.Sandbox.Pod, "+"+k.Name)
	delete(r.initDone, k.Sandbox.ID+"/"+k.Name)
	key, restarts := k.Sandbox.UID+"/"+k.Name, k.Data.RestartCount
	if last, logged := r.logs[key]; logged && restarts <= last && !k.Sandbox.Data.late {
		r.t.Errorf("%s starts with restart count %d after one with %d", called(k), restarts, last)
	}
	r.logs[key] = max(r.logs[key], restarts)
	if d, dies := r.dies[called(k)]; dies {
		exit := state.ExitWith(d.code)
		exit.Reason = cmp.Or(d.reason, exit.Reason)
		r.rt.EndAfter(k, d.after, exit)
	}
}

// RestartCounts implements Logs.
func (n *node) RestartCounts(p *v1.Pod) (map[string]int32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	counts := make(map[string]int32)
	for key, last := range n.fakeRuntime.logs {
		if name, ofPod := strings.CutPrefix(key, string(p.UID)+"/"); ofPod {
			counts[name] = last + 1
		}
	}
	return counts, nil
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
	for i := range k.Data.Pod.Spec.InitContainers {
		before := &k.Data.Pod.Spec.InitContainers[i]
		if before.Name == k.Name {
			break
		}
		switch {
		case !pod.IsSidecar(before) && !r.initDone[k.Sandbox.ID+"/"+before.Name]:
			r.t.Errorf("%s starts before init container %s has succeeded", called(k), before.Name)
		case pod.IsSidecar(before) && !slices.ContainsFunc(r.rt.Containers(), func(c *fakeContainer) bool {
			return c.Name == before.Name && c.Sandbox == k.Sandbox && c.State != state.Created
		}):
			r.t.Errorf("%s starts before sidecar %s", called(k), before.Name)
		}
	}
	if isInit(k) && !pod.IsSidecar(k.Data.Container) {
		for _, main := range r.rt.Containers() {
			if main.Sandbox == k.Sandbox && main.State == state.Running && isMain(main) {
				r.t.Errorf("%s: init container %s starts while %s runs", k.Sandbox.Pod, k.Name, main.Name)
			}
		}
	}
}

// checkStop: a sidecar that is well is not told to end while a main container of
// its pod runs, unless the time for a gentle end is over.
func (r *fakeRuntime) checkStop(k *fakeContainer, grace time.Duration) {
	const leastGrace = 2 * time.Second
	if k == nil || k.State != state.Running || !k.Sandbox.Ready || grace <= leastGrace || !isInit(k) || !pod.IsSidecar(k.Data.Container) ||
		r.ill[called(k)] || r.unordered[uidOf(k.Sandbox)] {
		return
	}
	for _, main := range r.rt.Containers() {
		if main.Sandbox == k.Sandbox && main.State == state.Running && isMain(main) {
			r.t.Errorf("%s: sidecar %s is told to end, with %v, while %s runs", k.Sandbox.Pod, k.Name, grace, main.Name)
		}
	}
}

func isInit(k *fakeContainer) bool { return has(k.Data.Pod.Spec.InitContainers, k.Name) }
func isMain(k *fakeContainer) bool { return has(k.Data.Pod.Spec.Containers, k.Name) }

func has(list []v1.Container, name string) bool {
	return slices.ContainsFunc(list, func(c v1.Container) bool { return c.Name == name })
}

func (c *conn) UpdateContainer(ctx context.Context, id string, p *v1.Pod, ctr *v1.Container) error {
	return c.do(ctx, "UpdateContainer", p.Name, callTime, func() error {
		k := c.rt.Container(id)
		if k == nil || k.State != state.Running {
			return fmt.Errorf("container %s: %w", id, pod.ErrNotFound)
		}
		k.Data.resources = &pod.ContainerResources{
			CPUShares:          ctr.Resources.Requests.Cpu().MilliValue() * 1024 / 1000,
			MemoryLimitInBytes: ctr.Resources.Limits.Memory().Value(),
		}
		return nil
	})
}
