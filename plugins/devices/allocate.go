package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pod"
)

// podDevices are the devices of a pod that has some, waits for their allocation, or
// failed to get them.
type podDevices struct {
	// containers maps container and resource to the grant.
	containers map[string]map[string]*grant
	allocation *allocationJob // nil for none
	failure    *failure       // nil for none
}

// grant is a container's share of one resource. It is immutable except for seenHealthy.
type grant struct {
	ids       []string // sorted
	numaNodes map[string][]int64
	response  *pluginapi.ContainerAllocateResponse
	// seenHealthy says that this podd has seen the devices healthy.
	seenHealthy bool
}

// allocationJob allocates reserved devices.
type allocationJob struct {
	reservations []reservation
	cancel       context.CancelFunc // nil until it runs
	// admission says that the pod waits for its admission; otherwise one of its containers
	// waits.
	admission bool
}

// failure is the reason why a plugin did not give a pod its devices.
type failure struct {
	err error
	// generation is the manager's before the plugin was asked: a change during the call
	// may let the next call succeed.
	generation uint64
	retryAt    time.Time // another attempt makes sense then
	delay      time.Duration
	retryDue   bool
}

// pluginResourcesLocked says which resources of a pod come from plugins. The node does not count
// others: the scheduler of a cluster may know them. For a static pod, no scheduler has
// looked for a node. Such a pod also waits for plugins that no podd has ever seen, as long
// as some may not have registered yet after the start.
func (m *Manager) pluginResourcesLocked(p *v1.Pod) func(string) bool {
	awaited, o := pod.IsStatic(p) && awaitingPlugins(m.newPluginsUntil), m.pods[p.UID]
	return func(name string) bool {
		if !strings.Contains(name, "/") {
			return false // mostly resources that every node has
		}
		if r := m.resources[name]; r != nil && r.everRegistered && !r.gone {
			return true
		}
		if o != nil {
			for _, grants := range o.containers {
				if grants[name] != nil {
					return true
				}
			}
		}
		return awaited && isExtendedResource(name)
	}
}

// Admit gives a pod the devices that it requests. It never blocks. waits, if not empty,
// says what has to happen first; then Waker.RetryAdmission is called. The error says, in
// upstream's words, why the pod cannot have them now. RetryAdmission is also called when the
// pod may have them. A pod that has what it requests, or requests nothing, is admitted.
func (m *Manager) Admit(p *v1.Pod) (waits string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := requestsOf(p, m.pluginResourcesLocked(p))
	if len(requests) == 0 {
		return "", nil
	}
	o := m.pods[p.UID]
	var last time.Duration
	if o != nil && o.allocation != nil {
		return allocatingMessage(o.allocation.reservations), nil
	}
	if o != nil && o.failure != nil {
		if f := o.failure; !f.retryDue && f.generation == m.generation {
			return "", f.err
		}
		last = o.failure.delay
		o.failure = nil
	}
	items, err := assign(m.deviceViewLocked(o), requests, "")
	if err != nil {
		if name := m.awaitedResourceLocked(requests); name != "" {
			return "waiting for the device plugin of " + name + " to register", nil
		}
		return "", err
	}
	if len(items) == 0 {
		return "", nil
	}
	m.startAllocationLocked(p.UID, &allocationJob{reservations: items, admission: true}, last)
	return allocatingMessage(items), nil
}

func allocatingMessage(items []reservation) string {
	return "waiting for the device plugin of " + items[0].resource + " to allocate"
}

// awaitedResourceLocked returns a requested resource that a plugin may still register after podd's
// start.
func (m *Manager) awaitedResourceLocked(requests []request) string {
	for _, q := range requests {
		until := m.knownPluginsUntil
		r := m.resources[q.resource]
		if r == nil || !r.everRegistered {
			until = m.newPluginsUntil
		}
		if awaitingPlugins(until) && (r == nil || !r.listed()) {
			return q.resource
		}
	}
	return ""
}

// awaitingPlugins says that, after the start, some plugins may not have registered yet.
func awaitingPlugins(until time.Time) bool { return !until.IsZero() && time.Now().Before(until) }

func (m *Manager) deviceViewLocked(o *podDevices) deviceView {
	s := deviceView{resources: m.resources, used: m.usedLocked()}
	if o != nil {
		s.granted = o.containers
	}
	return s
}

// usedLocked returns the devices that pods have, and the reserved ones.
func (m *Manager) usedLocked() map[string]map[string]bool {
	used := map[string]map[string]bool{}
	for _, o := range m.pods {
		for _, grants := range o.containers {
			for name, g := range grants {
				for _, id := range g.ids {
					addID(used, name, id)
				}
			}
		}
		if o.allocation != nil {
			for _, one := range o.allocation.reservations {
				for _, id := range one.ids {
					addID(used, one.resource, id)
				}
			}
		}
	}
	return used
}

// startAllocationLocked starts an allocation job; last is the delay after the last
// failure.
func (m *Manager) startAllocationLocked(uid pod.UID, j *allocationJob, last time.Duration) {
	o := m.pods[uid]
	if o == nil {
		o = &podDevices{containers: map[string]map[string]*grant{}}
		m.pods[uid] = o
	}
	o.allocation = j
	m.loop.Go(func(ctx context.Context) { m.runAllocation(ctx, uid, o, j, last) })
}

// runAllocation runs an allocation job and notifies those who wait for it.
func (m *Manager) runAllocation(ctx context.Context, uid pod.UID, o *podDevices, j *allocationJob, last time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.pods[uid] != o {
		m.mu.Unlock()
		return // released before it began
	}
	j.cancel = cancel
	generation := m.generation
	m.mu.Unlock()
	grants, err := m.allocateAll(ctx, o, j)
	var n notification
	m.mu.Lock()
	if m.pods[uid] != o || o.allocation != j {
		m.mu.Unlock()
		return // released
	}
	o.allocation = nil
	if err == nil {
		for i, one := range j.reservations {
			if o.containers[one.container] == nil {
				o.containers[one.container] = map[string]*grant{}
			}
			o.containers[one.container][one.resource] = grants[i]
		}
	} else {
		delay := m.times.retry.Next(last)
		// The reserved devices are free. Do not start a new generation: two pods that a
		// plugin refuses would make each other's allocation retry without end.
		m.devicesFreedLocked(&n)
		o.failure = &failure{err: err, generation: generation, retryAt: time.Now().Add(delay), delay: delay}
	}
	n.admitAgain = n.admitAgain || j.admission
	if !j.admission {
		n.addPod(uid)
	}
	m.mu.Unlock()
	if err == nil {
		m.save()
	} else {
		m.log.Warn("cannot allocate devices", "uid", uid, "error", err)
	}
	m.notify(n)
	m.loop.Wake()
}

// allocateAll asks the plugins for a job's reservations in turn, and returns their grants.
func (m *Manager) allocateAll(ctx context.Context, o *podDevices, j *allocationJob) ([]*grant, error) {
	var grants []*grant
	for i := range j.reservations {
		g, err := m.allocate(ctx, o, j, i)
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// allocate asks a plugin which devices it prefers for a reservation, if it has preferences, and
// then what the container needs in order to use them.
func (m *Manager) allocate(ctx context.Context, o *podDevices, j *allocationJob, i int) (*grant, error) {
	m.mu.Lock()
	one := j.reservations[i]
	pl, options := m.pluginLocked(one.resource)
	ids, reused := slices.Clone(one.ids), slices.Clone(one.reused)
	var available []string
	if pl != nil && options.prefer && len(reused) < len(ids) {
		available = slices.Sorted(maps.Keys(m.freeLocked(one.resource)))
	}
	m.mu.Unlock()
	if pl == nil {
		return nil, fmt.Errorf("endpoint %s has been stopped", one.resource)
	}
	if available != nil {
		preferred, err := m.preferredDevices(ctx, pl, one, append(available, ids...))
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		if o.allocation == j {
			applyPreference(j.reservations, i, preferred, m.freeLocked(one.resource))
		}
		ids = slices.Clone(j.reservations[i].ids)
		m.mu.Unlock()
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, m.times.allocate)
	defer cancel()
	response, err := pl.api.Allocate(within, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	m.metrics.allocations.WithLabelValues(one.resource).Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, errors.New(shorten(err.Error()))
	}
	if len(response.GetContainerResponses()) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response of %s", one.resource)
	}
	first := response.GetContainerResponses()[0]
	if err := checkResponse(first); err != nil {
		return nil, fmt.Errorf("the device plugin of %s: %w", one.resource, err)
	}
	g := &grant{ids: ids, response: first, seenHealthy: true, numaNodes: map[string][]int64{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.resources[one.resource]; r != nil {
		for _, id := range ids {
			if nodes := r.devices[id].numaNodes; len(nodes) > 0 {
				g.numaNodes[id] = nodes
			}
		}
	}
	return g, nil
}

// preferredDevices returns the devices that a plugin prefers among the available ones.
func (m *Manager) preferredDevices(ctx context.Context, pl *plugin, one reservation, available []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.times.prefer)
	defer cancel()
	slices.Sort(available)
	response, err := pl.api.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: slices.Compact(available), MustIncludeDeviceIDs: one.reused, AllocationSize: int32(len(one.ids)),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %s", shorten(err.Error()))
	}
	if all := response.GetContainerResponses(); len(all) > 0 {
		return all[0].GetDeviceIDs(), nil
	}
	return nil, nil
}

// pluginLocked returns the plugin that serves a resource and its options. Without a plugin, it
// returns nil and the options of the last one.
func (m *Manager) pluginLocked(name string) (pl *plugin, options pluginOptions) {
	r := m.resources[name]
	if r == nil {
		return nil, pluginOptions{}
	}
	if pl = r.serving(); pl != nil {
		return pl, pl.options
	}
	return nil, r.options
}

func (m *Manager) freeLocked(name string) map[string]bool {
	free := map[string]bool{}
	used := m.usedLocked()[name]
	if r := m.resources[name]; r != nil {
		for _, id := range r.healthyIDs() {
			if !used[id] {
				free[id] = true
			}
		}
	}
	return free
}

// Release takes a pod's devices away, because the pod no longer runs or is not admitted. It
// is idempotent and never blocks.
func (m *Manager) Release(uid pod.UID) {
	var n notification
	m.mu.Lock()
	o := m.pods[uid]
	delete(m.waiting, uid)
	if o != nil {
		m.releaseLocked(uid, o, &n)
	}
	m.mu.Unlock()
	m.notify(n)
}

func (m *Manager) releaseLocked(uid pod.UID, o *podDevices, n *notification) {
	delete(m.pods, uid)
	if o.allocation != nil && o.allocation.cancel != nil {
		o.allocation.cancel()
	}
	if len(o.containers) > 0 || o.allocation != nil {
		m.unsaved = m.unsaved || len(o.containers) > 0
		m.newGenerationLocked(n)
		m.loop.Wake()
	}
}

// Retain releases the devices of pods that keep does not name: they were removed while podd
// did not run.
func (m *Manager) Retain(keep map[pod.UID]bool) {
	var n notification
	m.mu.Lock()
	for uid, o := range m.pods {
		if !keep[uid] {
			m.releaseLocked(uid, o, &n)
		}
	}
	m.mu.Unlock()
	m.notify(n)
}
