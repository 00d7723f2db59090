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

// owner is a pod that has devices, or waits for their allocation, or failed to get them.
type owner struct {
	// containers maps container and resource to the grant.
	containers map[string]map[string]*grant
	job        *job     // nil for none
	failed     *failure // nil for none
}

// grant is a container's share of one resource. It is immutable except for confirmed.
type grant struct {
	ids      []string // sorted
	nodes    map[string][]int64
	response *pluginapi.ContainerAllocateResponse
	// confirmed says that this podd has seen the devices healthy.
	confirmed bool
}

// job allocates reserved devices.
type job struct {
	items  []item
	cancel context.CancelFunc // nil until it runs
	// admission says that the pod waits for its admission; otherwise one of its containers
	// waits.
	admission bool
}

// failure is the reason why a plugin did not give a pod its devices.
type failure struct {
	err        error
	generation uint64
	until      time.Time // another attempt makes sense then
	delay      time.Duration
	due        bool
}

// countedLocked says which resources of a pod come from plugins. The node does not count
// others: the scheduler of a cluster may know them. For a static pod, no scheduler has
// looked for a node. Such a pod also waits for plugins that no podd has ever seen, as long
// as some may not have registered yet after the start.
func (m *Manager) countedLocked(p *v1.Pod) func(string) bool {
	awaited, o := pod.IsStatic(p) && settling(m.newcomers), m.pods[p.UID]
	return func(name string) bool {
		if !strings.Contains(name, "/") {
			return false // mostly resources that every node has
		}
		if r := m.resources[name]; r != nil && r.known && !r.gone {
			return true
		}
		if o != nil {
			for _, grants := range o.containers {
				if grants[name] != nil {
					return true
				}
			}
		}
		return awaited && extended(name)
	}
}

// Admit gives a pod the devices that it requests. It never blocks. waits, if not empty,
// says what has to happen first; then Waker.AdmitAgain is called. The error says, in
// upstream's words, why the pod cannot have them now. AdmitAgain is also called when the
// pod may have them. A pod that has what it requests, or requests nothing, is admitted.
func (m *Manager) Admit(p *v1.Pod) (waits string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := requestsOf(p, m.countedLocked(p))
	if len(requests) == 0 {
		return "", nil
	}
	o := m.pods[p.UID]
	var last time.Duration
	if o != nil && o.job != nil {
		return allocating(o.job.items), nil
	}
	if o != nil && o.failed != nil {
		if f := o.failed; !f.due && f.generation == m.generation {
			return "", f.err
		}
		last = o.failed.delay
		o.failed = nil
	}
	items, err := assign(m.stockLocked(o), requests, "")
	if err != nil {
		if name := m.awaitedLocked(requests); name != "" {
			return "waiting for the device plugin of " + name + " to register", nil
		}
		return "", err
	}
	if len(items) == 0 {
		return "", nil
	}
	m.startLocked(p.UID, &job{items: items, admission: true}, last)
	return allocating(items), nil
}

func allocating(items []item) string {
	return "waiting for the device plugin of " + items[0].resource + " to allocate"
}

// awaitedLocked returns a requested resource that a plugin may still register after podd's
// start.
func (m *Manager) awaitedLocked(requests []request) string {
	for _, q := range requests {
		until := m.settled
		r := m.resources[q.resource]
		if r == nil || !r.known {
			until = m.newcomers
		}
		if settling(until) && (r == nil || !r.listed) {
			return q.resource
		}
	}
	return ""
}

// settling says that, after the start, some plugins may not have registered yet.
func settling(until time.Time) bool { return !until.IsZero() && time.Now().Before(until) }

func (m *Manager) stockLocked(o *owner) stock {
	s := stock{resources: m.resources, used: m.usedLocked()}
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
					set(used, name, id)
				}
			}
		}
		if o.job != nil {
			for _, one := range o.job.items {
				for _, id := range one.ids {
					set(used, one.resource, id)
				}
			}
		}
	}
	return used
}

// startLocked starts the allocation of a job's devices; last is the delay after the last
// failure.
func (m *Manager) startLocked(uid pod.UID, j *job, last time.Duration) {
	o := m.pods[uid]
	if o == nil {
		o = &owner{containers: map[string]map[string]*grant{}}
		m.pods[uid] = o
	}
	o.job = j
	m.loop.Go(func(ctx context.Context) { m.work(ctx, uid, o, j, last) })
}

// work does a job and tells those who wait for it.
func (m *Manager) work(ctx context.Context, uid pod.UID, o *owner, j *job, last time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	if m.pods[uid] != o {
		m.mu.Unlock()
		return // released before it began
	}
	j.cancel = cancel
	m.mu.Unlock()
	grants, err := m.allocateAll(ctx, o, j)
	var n news
	m.mu.Lock()
	if m.pods[uid] != o || o.job != j {
		m.mu.Unlock()
		return // released
	}
	o.job = nil
	if err == nil {
		for i, one := range j.items {
			if o.containers[one.container] == nil {
				o.containers[one.container] = map[string]*grant{}
			}
			o.containers[one.container][one.resource] = grants[i]
		}
	} else {
		delay := m.times.retry.Next(last)
		// The reserved devices are free. Do not start a new generation: two pods that a
		// plugin refuses would make each other's allocation retry without end.
		m.freedLocked(&n)
		o.failed = &failure{err: err, generation: m.generation, until: time.Now().Add(delay), delay: delay}
	}
	n.admit = n.admit || j.admission
	if !j.admission {
		n.of(uid)
	}
	m.mu.Unlock()
	if err == nil {
		m.save()
	} else {
		m.log.Warn("cannot allocate devices", "uid", uid, "error", err)
	}
	m.tell(n)
	m.loop.Wake()
}

// allocateAll asks the plugins for a job's items in turn, and returns their grants.
func (m *Manager) allocateAll(ctx context.Context, o *owner, j *job) ([]*grant, error) {
	var grants []*grant
	for i := range j.items {
		g, err := m.allocate(ctx, o, j, i)
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// allocate asks a plugin which devices it prefers for an item, if it has preferences, and
// then what the container needs in order to use them.
func (m *Manager) allocate(ctx context.Context, o *owner, j *job, i int) (*grant, error) {
	m.mu.Lock()
	one := j.items[i]
	pl, options := m.pluginLocked(one.resource)
	ids, reused := slices.Clone(one.ids), slices.Clone(one.reused)
	var available []string
	if pl != nil && options.GetPreferredAllocationAvailable && len(reused) < len(ids) {
		available = slices.Sorted(maps.Keys(m.freeLocked(one.resource)))
	}
	m.mu.Unlock()
	if pl == nil {
		return nil, fmt.Errorf("endpoint %s has been stopped", one.resource)
	}
	if available != nil {
		preferred, err := m.preferred(ctx, pl, one, append(available, ids...))
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		if o.job == j {
			prefer(j.items, i, preferred, m.freeLocked(one.resource))
		}
		ids = slices.Clone(j.items[i].ids)
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
	g := &grant{ids: ids, response: first, confirmed: true, nodes: map[string][]int64{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.resources[one.resource]; r != nil {
		for _, id := range ids {
			if nodes := r.devices[id].nodes; len(nodes) > 0 {
				g.nodes[id] = nodes
			}
		}
	}
	return g, nil
}

// preferred returns the devices that a plugin prefers among the available ones.
func (m *Manager) preferred(ctx context.Context, pl *plugin, one item, available []string) ([]string, error) {
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

func (m *Manager) pluginLocked(name string) (pl *plugin, options *pluginapi.DevicePluginOptions) {
	if r := m.resources[name]; r != nil {
		return r.plugin, &r.options
	}
	return nil, nil
}

func (m *Manager) freeLocked(name string) map[string]bool {
	free := map[string]bool{}
	used := m.usedLocked()[name]
	if r := m.resources[name]; r != nil {
		for _, id := range r.healthy() {
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
	var n news
	m.mu.Lock()
	o := m.pods[uid]
	delete(m.waiting, uid)
	if o != nil {
		m.releaseLocked(uid, o, &n)
	}
	m.mu.Unlock()
	m.tell(n)
}

func (m *Manager) releaseLocked(uid pod.UID, o *owner, n *news) {
	delete(m.pods, uid)
	if o.job != nil && o.job.cancel != nil {
		o.job.cancel()
	}
	if len(o.containers) > 0 || o.job != nil {
		m.unsaved = m.unsaved || len(o.containers) > 0
		m.betterLocked(n)
		m.loop.Wake()
	}
}

// Retain releases the devices of pods that keep does not name: they were removed while podd
// did not run.
func (m *Manager) Retain(keep map[pod.UID]bool) {
	var n news
	m.mu.Lock()
	for uid, o := range m.pods {
		if !keep[uid] {
			m.releaseLocked(uid, o, &n)
		}
	}
	m.mu.Unlock()
	m.tell(n)
}
