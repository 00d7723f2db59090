package dra

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"podd/internal/pod"
)

// claimRequests is what a container needs from one claim.
type claimRequests struct {
	claim    string
	requests []string // "" for all
}

// claimRequestsOf returns what a container needs from its pod's claims, in the order of the pod;
// those of extended resources come last. The errors are upstream's.
func claimRequestsOf(p *v1.Pod, c *v1.Container) (all []claimRequests, err error) {
	for i := range p.Spec.ResourceClaims {
		n := claimRequests{}
		for _, wants := range c.Resources.Claims {
			if wants.Name == p.Spec.ResourceClaims[i].Name {
				n.requests = append(n.requests, wants.Request)
			}
		}
		if n.requests == nil {
			continue
		}
		if n.claim, _, err = nameOf(p, &p.Spec.ResourceClaims[i]); err != nil {
			return nil, err
		}
		if n.claim != "" {
			all = append(all, n)
		}
	}
	s := p.Status.ExtendedResourceClaimStatus
	if s == nil {
		return all, nil
	}
	n := claimRequests{claim: s.ResourceClaimName}
	for _, to := range s.RequestMappings {
		q := c.Resources.Requests[v1.ResourceName(to.ResourceName)]
		if to.ContainerName == c.Name && !q.IsZero() && pod.IsDRAExtendedResource(p, c.Name, v1.ResourceName(to.ResourceName)) {
			n.requests = append(n.requests, to.RequestName)
		}
	}
	if n.requests != nil {
		all = append(all, n)
	}
	return all, nil
}

// Container returns the qualified names of the CDI devices that a container gets by its
// pod's claims, as drivers returned them when this podd or an earlier one had them
// prepared. It never blocks.
func (m *Manager) Container(p *v1.Pod, c *v1.Container) (cdi []string, err error) {
	if !usesClaims(p) {
		return nil, nil
	}
	all, err := claimRequestsOf(p, c)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, n := range all {
		of := m.claims[keyOf(p.Namespace, n.claim)]
		if of == nil || !of.pods[p.UID] {
			return nil, fmt.Errorf("unable to get claim info for ResourceClaim %s in namespace %s: it was not prepared for this pod, or podd has lost what its drivers said", n.claim, p.Namespace)
		}
		for _, d := range of.devicesFor(n.requests) {
			for _, name := range d.CDI {
				if !seen[name] {
					seen[name] = true
					cdi = append(cdi, name)
				}
			}
		}
	}
	return cdi, nil
}

// driverDevice is a device and its driver.
type driverDevice struct {
	driver string
	device
}

// devicesFor returns the devices for requests of a claim, by driver.
func (c *claim) devicesFor(requests []string) (all []driverDevice) {
	for _, driver := range slices.Sorted(maps.Keys(c.drivers)) {
		for _, d := range c.drivers[driver] {
			if slices.ContainsFunc(requests, d.matchesRequest) {
				all = append(all, driverDevice{driver, d})
			}
		}
	}
	return all
}

// Resources returns the claims of a container and all of their devices, for the pod
// resources API. (Upstream repeats, in each device of a driver, the CDI devices of those
// before.)
func (m *Manager) Resources(p *v1.Pod, c *v1.Container) (all []*podresources.DynamicResource) {
	if !usesClaims(p) {
		return nil
	}
	needed, err := claimRequestsOf(p, c)
	if err != nil {
		return nil // its claims are not made yet
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range needed {
		of := m.claims[keyOf(p.Namespace, n.claim)]
		if of == nil || !of.pods[p.UID] {
			continue
		}
		r := &podresources.DynamicResource{ClaimName: of.name, ClaimNamespace: of.namespace}
		for _, d := range of.devicesFor([]string{""}) {
			one := &podresources.ClaimResource{DriverName: d.driver, PoolName: d.Pool, DeviceName: d.Name, ShareId: d.Share}
			for _, name := range d.CDI {
				one.CdiDevices = append(one.CdiDevices, &podresources.CDIDevice{Name: name})
			}
			r.ClaimResources = append(r.ClaimResources, one)
		}
		all = append(all, r)
	}
	return all
}
