package devices

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"podd/internal/pod"
)

// Health returns the health of a pod's devices, by container (KEP-4680); nil for none. It
// is Unknown while no plugin reports a device.
func (m *Manager) Health(uid pod.UID) map[string][]v1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.pods[uid]
	if o == nil || len(o.containers) == 0 {
		return nil
	}
	all := map[string][]v1.ResourceStatus{}
	for container, grants := range o.containers {
		for _, name := range slices.Sorted(maps.Keys(grants)) {
			s := v1.ResourceStatus{Name: v1.ResourceName(name)}
			for _, id := range grants[name].ids {
				s.Resources = append(s.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: m.healthLocked(name, id)})
			}
			all[container] = append(all[container], s)
		}
	}
	return all
}

func (m *Manager) healthLocked(name, id string) v1.ResourceHealthStatus {
	r := m.resources[name]
	if r == nil || !r.listed() {
		return v1.ResourceHealthStatusUnknown
	}
	d, listed := r.devices[id]
	switch {
	case !listed:
		return v1.ResourceHealthStatusUnknown
	case d.healthy:
		return v1.ResourceHealthStatusHealthy
	}
	return v1.ResourceHealthStatusUnhealthy
}

// ContainerDevices returns a container's devices, for the pod resources API.
func (m *Manager) ContainerDevices(uid pod.UID, container string) (all []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.pods[uid]
	if o == nil {
		return nil
	}
	grants := o.containers[container]
	for _, name := range slices.Sorted(maps.Keys(grants)) {
		all = append(all, deviceEntries(name, grants[name].ids, func(id string) []int64 { return grants[name].numaNodes[id] })...)
	}
	return all
}

// AllocatableDevices returns the healthy devices, for the pod resources API.
func (m *Manager) AllocatableDevices() (all []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		r := m.resources[name]
		all = append(all, deviceEntries(name, r.healthyIDs(), func(id string) []int64 { return r.devices[id].numaNodes })...)
	}
	return all
}

// deviceEntries returns an entry for each device, as upstream does.
func deviceEntries(name string, ids []string, nodes func(id string) []int64) (all []*podresources.ContainerDevices) {
	for _, id := range ids {
		d := &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id}}
		for _, n := range nodes(id) {
			if d.Topology == nil {
				d.Topology = &podresources.TopologyInfo{}
			}
			d.Topology.Nodes = append(d.Topology.Nodes, &podresources.NUMANode{ID: n})
		}
		all = append(all, d)
	}
	return all
}
