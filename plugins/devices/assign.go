package devices

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// request is a container's request for devices of one resource.
type request struct {
	container, resource string
	count               int64
	// reusable says that a later container may have the same devices.
	reusable bool
}

// reservation is a request with its reserved devices, sorted.
type reservation struct {
	request
	ids []string
	// reused are those of ids that an init container has had before.
	reused []string
}

// requestsOf returns a pod's requests, in the order in which containers are started; counts
// says whether device plugins provide a resource. Limits count: extended resources cannot
// be overcommitted. Resources that stand for a ResourceClaim do not come from device
// plugins.
func requestsOf(p *v1.Pod, counts func(resource string) bool) (all []request) {
	for c, kind := range pod.ContainerSpecs(&p.Spec) {
		if kind == pod.EphemeralContainer {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			q := c.Resources.Limits[name]
			if q.Value() > 0 && counts(string(name)) && !pod.IsDRAExtendedResource(p, c.Name, name) {
				all = append(all, request{c.Name, string(name), q.Value(), kind == pod.InitContainer})
			}
		}
	}
	return all
}

// deviceView is the node's devices as one pod sees them.
type deviceView struct {
	resources map[string]*resource
	// granted maps container and resource to the grants of the pod's containers.
	granted map[string]map[string]*grant
	// used are the devices of all pods, including this one.
	used map[string]map[string]bool
}

// assign chooses devices for the requests of a pod, or of one container (only): first those
// that an init container has had, then free ones, by ID. It skips requests that are granted
// already. It changes nothing. The errors are upstream's.
func assign(s deviceView, requests []request, only string) (items []reservation, err error) {
	reusable, taken := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, q := range requests {
		var ids []string
		if g := s.granted[q.container][q.resource]; g != nil {
			if only == "" || only == q.container {
				if err := recheckGrant(s.resources[q.resource], q, g); err != nil {
					return nil, err
				}
			}
			ids = g.ids
		} else if only == "" || only == q.container {
			one, err := chooseDevices(s, q, reusable[q.resource], taken[q.resource])
			if err != nil {
				return nil, err
			}
			items = append(items, one)
			ids = one.ids
		}
		for _, id := range ids {
			addID(taken, q.resource, id)
			if q.reusable {
				addID(reusable, q.resource, id)
			} else {
				delete(reusable[q.resource], id)
			}
		}
	}
	return items, nil
}

func addID(sets map[string]map[string]bool, name, id string) {
	if sets[name] == nil {
		sets[name] = map[string]bool{}
	}
	sets[name][id] = true
}

// recheckGrant says whether a container may keep its grant. Devices that this podd has seen
// healthy stay granted.
func recheckGrant(r *resource, q request, g *grant) error {
	if int64(len(g.ids)) != q.count {
		return fmt.Errorf("container %q changed request for resource %q from %d to %d", q.container, q.resource, len(g.ids), q.count)
	}
	if g.seenHealthy {
		return nil
	}
	if err := checkAvailable(r, q.resource); err != nil {
		return err
	}
	if !r.allHealthy(g.ids) {
		return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", q.resource)
	}
	return nil
}

func checkAvailable(r *resource, name string) error {
	if r == nil || !r.everRegistered || r.gone {
		return fmt.Errorf("cannot allocate unregistered device %s", name)
	}
	if len(r.healthyIDs()) == 0 {
		return fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	return nil
}

func chooseDevices(s deviceView, q request, reusable, taken map[string]bool) (one reservation, err error) {
	r := s.resources[q.resource]
	if err := checkAvailable(r, q.resource); err != nil {
		return one, err
	}
	one.request = q
	for _, id := range slices.Sorted(maps.Keys(reusable)) {
		if int64(len(one.reused)) < q.count && r.devices[id].healthy {
			one.reused = append(one.reused, id)
		}
	}
	one.ids = slices.Clone(one.reused)
	var free []string
	for _, id := range r.healthyIDs() {
		if !s.used[q.resource][id] && !taken[id] {
			free = append(free, id)
		}
	}
	missing := q.count - int64(len(one.ids))
	if int64(len(free)) < missing {
		return one, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", q.resource, missing, len(free))
	}
	one.ids = append(one.ids, free[:missing]...)
	slices.Sort(one.ids)
	return one, nil
}

// applyPreference changes the devices of items[i] to those that its plugin prefers, as far as they
// are free and it need not reuse others. It changes the pod's later reservations that reuse them,
// too.
func applyPreference(items []reservation, i int, preferred []string, free map[string]bool) {
	one := &items[i]
	own := map[string]bool{}
	for _, id := range one.ids {
		own[id] = !slices.Contains(one.reused, id)
	}
	next := slices.Clone(one.reused)
	take := func(id string) {
		if len(next) < len(one.ids) && !slices.Contains(next, id) {
			next = append(next, id)
		}
	}
	for _, id := range preferred {
		if own[id] || free[id] {
			take(id)
		}
	}
	for _, id := range one.ids {
		take(id)
	}
	var dropped, added []string
	for _, id := range one.ids {
		if !slices.Contains(next, id) {
			dropped = append(dropped, id)
		}
	}
	for _, id := range next {
		if !slices.Contains(one.ids, id) {
			added = append(added, id)
		}
	}
	for k, id := range dropped {
		for j := i; j < len(items); j++ {
			if items[j].resource == one.resource {
				replaceID(items[j].ids, id, added[k])
				replaceID(items[j].reused, id, added[k])
			}
		}
	}
}

func replaceID(ids []string, old, id string) {
	if at := slices.Index(ids, old); at >= 0 {
		ids[at] = id
		slices.Sort(ids)
	}
}
