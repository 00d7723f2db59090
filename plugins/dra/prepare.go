package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"podd/internal/pluginconn"
	"podd/internal/pod"
)

// Prepare makes drivers prepare those claims of a pod that this podd has not prepared yet.
// Call it before the pod's sandbox is made; it may be repeated. It blocks while it reads
// the claims, while other pods' calls about them are in progress and while the drivers
// work, or until ctx ends. The error is meant for people, in upstream's words. The pod is
// woken when a missing driver is there.
func (m *Manager) Prepare(ctx context.Context, p *v1.Pod) error {
	if !usesClaims(p) {
		return nil
	}
	began := time.Now()
	err := m.prepare(ctx, p)
	m.metrics.operation("PrepareResources", began, err)
	if err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, p *v1.Pod) error {
	wanted, err := m.fetchClaims(ctx, p)
	if err != nil || len(wanted) == 0 {
		return err
	}
	var keys []string
	for _, c := range wanted {
		keys = append(keys, c.key())
	}
	unlockAll, err := m.lockClaims(ctx, keys)
	if err != nil {
		return err
	}
	defer unlockAll()
	todo, err := m.addPod(p.UID, wanted)
	if err == nil {
		err = m.save()
	}
	if err != nil || len(todo) == 0 {
		return err
	}
	for _, driver := range driversOf(todo) {
		claims := m.toCall(withDriver(todo, driver), driver, resourcev1.SkipNodeOperationNodePrepareResources)
		if len(claims) == 0 {
			continue
		}
		if err := m.prepareWith(ctx, p.UID, driver, claims); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, c := range todo {
		c.prepared = true
	}
	m.removeWaitingLocked(p.UID)
	m.mu.Unlock()
	return m.save()
}

// lockClaims locks claims by their keys, always in the same order.
func (m *Manager) lockClaims(ctx context.Context, keys []string) (unlockAll func(), err error) {
	var held []func()
	unlockAll = func() {
		for _, unlock := range held {
			unlock()
		}
	}
	keys = slices.Clone(keys)
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		unlock, err := m.claimLocks.Lock(ctx, key)
		if err != nil {
			unlockAll()
			return nil, err
		}
		held = append(held, unlock)
	}
	return unlockAll, nil
}

// addPod adds a pod to the users of its claims and returns the claims that must still be
// prepared. The caller holds their locks. After an error nothing has changed.
func (m *Manager) addPod(uid pod.UID, wanted []*claim) (todo []*claim, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range wanted {
		old := m.claims[c.key()]
		switch {
		case old == nil:
		case old.uid != c.uid:
			return nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", c.name, old.uid)
		case old.allocation != c.allocation:
			return nil, fmt.Errorf("ResourceClaim %s was allocated anew, and what a previous pod had of it is still prepared (previous pod force-deleted?!)", c.name)
		}
	}
	delete(m.orphanedPods, uid)
	for _, c := range wanted {
		if old := m.claims[c.key()]; old != nil {
			c = old
		} else {
			m.claims[c.key()] = c
		}
		if !c.pods[uid] {
			c.pods[uid] = true
			m.revision++
		}
		c.unprepareError = ""
		if !c.prepared {
			todo = append(todo, c)
		}
	}
	return todo, nil
}

// driversOf returns the names of the drivers of claims, sorted.
func driversOf(claims []*claim) []string {
	names := map[string]bool{}
	for _, c := range claims {
		for driver := range c.drivers {
			names[driver] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func withDriver(claims []*claim, driver string) (some []*claim) {
	for _, c := range claims {
		if _, has := c.drivers[driver]; has {
			some = append(some, c)
		}
	}
	return some
}

// toCall returns the claims for which podd must call the driver. It counts the others.
func (m *Manager) toCall(claims []*claim, driver string, call resourcev1.SkipNodeOperation) []*claim {
	return slices.DeleteFunc(claims, func(c *claim) bool {
		spared := c.spares(driver, call)
		if spared {
			m.metrics.skipped(driver, call)
		}
		return spared
	})
}

// prepareWith makes one driver prepare its part of claims. The caller holds their locks.
func (m *Manager) prepareWith(ctx context.Context, uid pod.UID, driver string, claims []*claim) error {
	var response *drapb.NodePrepareResourcesResponse
	err := m.call(ctx, uid, driver, "NodePrepareResources", func(ctx context.Context, api drapb.DRAPluginClient) (err error) {
		response, err = api.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: claimMessages(claims)})
		return err
	})
	if err != nil {
		return err
	}
	prepared, err := preparedDevices(claims, response)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, c := range claims {
		c.drivers[driver] = prepared[n]
	}
	m.revision++
	return nil
}

// call calls a driver for a pod. If the driver is not there, does not answer, or answers
// with an error, the pod waits for it.
func (m *Manager) call(ctx context.Context, uid pod.UID, driver, method string, do func(context.Context, drapb.DRAPluginClient) error) error {
	i, err := m.instance(driver)
	if err == nil {
		within, cancel := context.WithTimeout(ctx, m.times.call)
		defer cancel()
		if err = do(within, i.api); err == nil {
			return nil
		}
		err = errors.New(method + ": " + pluginconn.Shorten(err.Error()))
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addWaitingLocked(driver, uid)
	return err
}

func claimMessages(claims []*claim) (all []*drapb.Claim) {
	for _, c := range claims {
		all = append(all, c.message())
	}
	return all
}
