package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
)

// Container returns what a container that is about to start needs to have its devices. If
// that is not ready, the message says what it waits for, and Waker.Changed is called when
// asking again makes sense; an error is a plugin's. It blocks while plugins prepare the
// devices (PreStartContainer), for 30 s each at most, or until ctx ends.
func (m *Manager) Container(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.ContainerDevices, error) {
	grants, waits, err := m.grantsOf(p, c)
	if waits.Reason != "" || err != nil {
		return pod.ContainerDevices{Reason: waits.Reason, Message: waits.Message}, err
	}
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		if err := m.preStart(ctx, name, grants[name].ids); err != nil {
			return pod.ContainerDevices{}, err
		}
	}
	return mergeGrants(grants), nil
}

// grantsOf returns a container's grants, or what it waits for.
func (m *Manager) grantsOf(p *v1.Pod, c *v1.Container) (grants map[string]*grant, waits pod.Waiting, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, p.UID)
	all := requestsOf(p, m.pluginResourcesLocked(p))
	if !slices.ContainsFunc(all, func(q request) bool { return q.container == c.Name }) {
		return nil, waits, nil
	}
	o := m.pods[p.UID]
	if o != nil && o.allocation != nil {
		return nil, pod.Waiting{Reason: pod.ReasonContainerCreating, Message: allocatingMessage(o.allocation.reservations)}, nil
	}
	if o != nil && o.failure != nil {
		err, o.failure = o.failure.err, nil
		return nil, waits, err
	}
	items, err := assign(m.deviceViewLocked(o), all, c.Name)
	if err != nil {
		m.waiting[p.UID] = true
		return nil, pod.Waiting{Reason: pod.ReasonCreateContainerConfigError, Message: err.Error()}, nil
	}
	if len(items) > 0 {
		m.startAllocationLocked(p.UID, &allocationJob{reservations: items}, 0)
		return nil, pod.Waiting{Reason: pod.ReasonContainerCreating, Message: allocatingMessage(items)}, nil
	}
	return maps.Clone(o.containers[c.Name]), waits, nil
}

// preStart makes a plugin prepare devices, if it asks for that.
func (m *Manager) preStart(ctx context.Context, name string, ids []string) error {
	m.mu.Lock()
	pl, options := m.pluginLocked(name)
	wanted := options.preStart
	m.mu.Unlock()
	if !wanted {
		return nil
	}
	if pl == nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: endpoint %s has been stopped", name)
	}
	ctx, cancel := context.WithTimeout(ctx, m.times.preStart)
	defer cancel()
	if _, err := pl.api.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %s", shorten(err.Error()))
	}
	return nil
}

// mergeGrants merges a container's grants. If two grants use the same name or place, the first
// one wins, in the order of the resources' names.
func mergeGrants(grants map[string]*grant) pod.ContainerDevices {
	all := pod.ContainerDevices{Ready: true}
	places, mounts, cdi := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		r := grants[name].response
		all.Env = mergeMissing(all.Env, r.GetEnvs())
		all.Annotations = mergeMissing(all.Annotations, r.GetAnnotations())
		for _, d := range r.GetDevices() {
			if !places[d.GetContainerPath()] {
				places[d.GetContainerPath()] = true
				all.Devices = append(all.Devices, pod.Device{HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(), Permissions: d.GetPermissions()})
			}
		}
		for _, mount := range r.GetMounts() {
			if !mounts[mount.GetContainerPath()] {
				mounts[mount.GetContainerPath()] = true
				all.Mounts = append(all.Mounts, pod.Mount{HostPath: mount.GetHostPath(), ContainerPath: mount.GetContainerPath(), ReadOnly: mount.GetReadOnly()})
			}
		}
		for _, d := range r.GetCdiDevices() {
			if !cdi[d.GetName()] {
				cdi[d.GetName()] = true
				all.CDI = append(all.CDI, d.GetName())
			}
		}
	}
	return all
}

func mergeMissing(all, more map[string]string) map[string]string {
	for name, value := range more {
		if all == nil {
			all = map[string]string{}
		}
		if _, there := all[name]; !there {
			all[name] = value
		}
	}
	return all
}

// checkResponse checks a plugin's response for a container, before it is written down and
// passed to the runtime.
func checkResponse(r *pluginapi.ContainerAllocateResponse) error {
	for name, value := range r.GetEnvs() {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("%q is no environment variable", shorten(name))
		}
	}
	path := func(what, p string) error {
		if !filepath.IsAbs(p) || strings.Contains(p, "\x00") {
			return fmt.Errorf("the %s %q is no absolute path", what, shorten(p))
		}
		return nil
	}
	for _, d := range r.GetDevices() {
		if err := errors.Join(path("device", d.GetHostPath()), path("place of a device", d.GetContainerPath())); err != nil {
			return err
		}
		if strings.Trim(d.GetPermissions(), "rwm") != "" {
			return fmt.Errorf("the permissions %q of device %s are none of r, w and m", shorten(d.GetPermissions()), shorten(d.GetHostPath()))
		}
	}
	for _, m := range r.GetMounts() {
		if err := errors.Join(path("mount", m.GetHostPath()), path("place of a mount", m.GetContainerPath())); err != nil {
			return err
		}
	}
	return nil
}
