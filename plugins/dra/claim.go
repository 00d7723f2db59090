package dra

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"podd/internal/pod"
)

// maxResults bounds the devices of one claim; the API's own bound is 32
// (AllocationResultsMaxSize).
const maxResults = 1024

// claim is a ResourceClaim that pods use. The holder of its lock (Manager.claimLocks)
// changes its fields, under Manager.mu. The name, the UID and the drivers' names never
// change.
type claim struct {
	namespace, name string
	uid             types.UID
	// allocation identifies the devices that are allocated to it.
	allocation string
	pods       map[pod.UID]bool
	// drivers maps each driver with a part in the allocation to the devices that it has
	// prepared.
	drivers map[string][]device
	// skips maps each driver to the calls that it does not need (KEP-5945); "*" means all.
	skips map[string][]resourcev1.SkipNodeOperation
	// prepared says that this podd has prepared it.
	prepared       bool
	unprepareError string // why it could not be unprepared
}

// device is a device that a driver has prepared.
type device struct {
	Pool     string   `json:"pool,omitempty"`
	Name     string   `json:"name,omitempty"`
	Share    *string  `json:"share,omitempty"`
	Requests []string `json:"requests,omitempty"`
	CDI      []string `json:"cdi,omitempty"`
}

// matchesRequest says whether a device belongs to a request of its claim; "" means any request.
func (d *device) matchesRequest(request string) bool {
	return request == "" || len(d.Requests) == 0 ||
		slices.ContainsFunc(d.Requests, func(r string) bool { return baseRequest(r) == baseRequest(request) })
}

// baseRequest returns the request without its alternative: "request" for "request/subrequest"
// (upstream's BaseRequestRef).
func baseRequest(request string) string {
	request, _, _ = strings.Cut(request, "/")
	return request
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

func (c *claim) key() string { return keyOf(c.namespace, c.name) }

func (c *claim) message() *drapb.Claim {
	return &drapb.Claim{Namespace: c.namespace, Uid: string(c.uid), Name: c.name}
}

// usesClaims says whether a pod uses claims.
func usesClaims(p *v1.Pod) bool {
	return len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil
}

// nameOf returns the name of the ResourceClaim of one of a pod's claims. It is empty if
// none was made because none is needed. generated says that it must be the pod's own. Rules
// and errors are those of upstream's resourceclaim.Name.
func nameOf(p *v1.Pod, c *v1.PodResourceClaim) (name string, generated bool, err error) {
	switch {
	case c.ResourceClaimName != nil:
		return *c.ResourceClaimName, false, nil
	case c.ResourceClaimTemplateName == nil:
		return "", false, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`, p.Namespace, p.Name, c.Name)
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name != c.Name {
			continue
		}
		if s.ResourceClaimName == nil {
			return "", true, nil
		}
		return *s.ResourceClaimName, true, nil
	}
	return "", false, fmt.Errorf(`pod "%s/%s": ResourceClaim not created yet`, p.Namespace, p.Name)
}

// fetchClaims reads the claims of a pod from the cluster and checks that the pod may use them
// and that their drivers are there. It remembers nothing about a claim that fails. The
// order of the checks and their errors are upstream's.
func (m *Manager) fetchClaims(ctx context.Context, p *v1.Pod) (all []*claim, err error) {
	add := func(name string, generated bool) error {
		if name == "" || slices.ContainsFunc(all, func(c *claim) bool { return c.name == name }) {
			return nil
		}
		c, err := m.fetchClaim(ctx, p, name, generated)
		if err != nil {
			return err
		}
		all = append(all, c)
		return m.checkDriversRegistered(p.UID, c)
	}
	for i := range p.Spec.ResourceClaims {
		name, generated, err := nameOf(p, &p.Spec.ResourceClaims[i])
		if err == nil {
			err = add(name, generated)
		}
		if err != nil {
			return nil, err
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		if err := add(s.ResourceClaimName, false); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (m *Manager) fetchClaim(ctx context.Context, p *v1.Pod, name string, generated bool) (*claim, error) {
	of, err := m.cluster.ResourceClaim(ctx, p.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("fetch ResourceClaim %s: %w", name, err)
	}
	if generated && !metav1.IsControlledBy(of, p) {
		return nil, fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", of.Namespace, of.Name, p.Namespace, p.Name)
	}
	if !slices.ContainsFunc(of.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID }) {
		return nil, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", p.Name, p.UID, name, of.UID)
	}
	c, err := newClaim(p.Namespace, name, of)
	if err == nil && len(c.skips) > 0 && !m.optionalOperations {
		err = errors.New("DRAOptionalNodeOperations feature gate is disabled on kubelet")
	}
	if err != nil {
		return nil, fmt.Errorf("ResourceClaim %s: %w", name, err)
	}
	return c, nil
}

func newClaim(namespace, name string, of *resourcev1.ResourceClaim) (*claim, error) {
	if of.Status.Allocation == nil {
		return nil, errors.New("not allocated")
	}
	results := of.Status.Allocation.Devices.Results
	if len(results) > maxResults {
		return nil, fmt.Errorf("%d devices are allocated, and %d are the most", len(results), maxResults)
	}
	c := &claim{namespace: namespace, name: name, uid: of.UID, pods: map[pod.UID]bool{}, drivers: map[string][]device{}}
	for i := range results {
		c.drivers[results[i].Driver] = nil
	}
	c.allocation = allocationHash(results)
	c.skips = skippedOperations(results)
	return c, nil
}

// skippedOperations maps each driver to the calls to skip: those that none of its devices in the
// allocation needs.
func skippedOperations(results []resourcev1.DeviceRequestAllocationResult) map[string][]resourcev1.SkipNodeOperation {
	skips := map[string][]resourcev1.SkipNodeOperation{}
	seen := map[string]bool{}
	for i := range results {
		driver, spared := results[i].Driver, results[i].SkipNodeOperations
		switch {
		case len(spared) == 0:
			delete(skips, driver)
		case !seen[driver]:
			skips[driver] = slices.Clone(spared)
		default:
			skips[driver] = intersection(skips[driver], spared)
		}
		seen[driver] = true
	}
	maps.DeleteFunc(skips, func(_ string, calls []resourcev1.SkipNodeOperation) bool { return len(calls) == 0 })
	return skips
}

// intersection returns the calls in both; "*" means all.
func intersection(a, b []resourcev1.SkipNodeOperation) []resourcev1.SkipNodeOperation {
	switch {
	case slices.Contains(a, resourcev1.SkipNodeOperationAll):
		return slices.Clone(b)
	case slices.Contains(b, resourcev1.SkipNodeOperationAll):
		return a
	}
	return slices.DeleteFunc(slices.Clone(a), func(o resourcev1.SkipNodeOperation) bool { return !slices.Contains(b, o) })
}

// spares says that podd skips this call of a driver for the claim.
func (c *claim) spares(driver string, call resourcev1.SkipNodeOperation) bool {
	return slices.Contains(c.skips[driver], call) || slices.Contains(c.skips[driver], resourcev1.SkipNodeOperationAll)
}

// allocationHash tells one allocation from another.
func allocationHash(results []resourcev1.DeviceRequestAllocationResult) string {
	var which [][5]string
	for i := range results {
		r := &results[i]
		one := [5]string{r.Request, r.Driver, r.Pool, r.Device}
		if r.ShareID != nil {
			one[4] = string(*r.ShareID)
		}
		which = append(which, one)
	}
	text, _ := json.Marshal(which) // it never fails for strings
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

// checkDriversRegistered says whether the drivers of a claim are registered. The pod is woken
// when a missing one registers.
func (m *Manager) checkDriversRegistered(uid pod.UID, c *claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, driver := range slices.Sorted(maps.Keys(c.drivers)) {
		if c.spares(driver, resourcev1.SkipNodeOperationNodePrepareResources) {
			continue // it may never be on this node
		}
		if _, err := m.instanceLocked(driver); err != nil {
			m.addWaitingLocked(driver, uid)
			return err
		}
	}
	return nil
}

// usersLocked returns the pods with a device of a driver: any device, or one of those
// named.
func (m *Manager) usersLocked(driver string, devices map[deviceKey]bool) map[pod.UID]bool {
	users := map[pod.UID]bool{}
	for _, c := range m.claims {
		if slices.ContainsFunc(c.drivers[driver], func(d device) bool { return devices == nil || devices[deviceKey{d.Pool, d.Name}] }) {
			maps.Copy(users, c.pods)
		}
	}
	return users
}
