package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"podd/internal/pod"
)

// Holds says that a pod has claims that are to be unprepared when it has ended.
func (m *Manager) Holds(uid pod.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.claimsOfLocked(uid)) > 0
}

func (m *Manager) claimsOfLocked(uid pod.UID) (all []*claim) {
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		if c := m.claims[key]; c.pods[uid] {
			all = append(all, c)
		}
	}
	return all
}

// Unprepare ends a pod's use of its claims: nothing of it runs any more. Those that no other
// pod uses are unprepared by their drivers. It is idempotent, and blocks while drivers work,
// or until ctx ends. After an error it is to be called again; the pod is woken when a driver
// that it lacks is there.
func (m *Manager) Unprepare(ctx context.Context, uid pod.UID) error {
	return m.unprepare(ctx, uid, func() bool { return true })
}

// unprepare is Unprepare, unless still says otherwise once it is the pod's turn; that is
// called with the lock held.
func (m *Manager) unprepare(ctx context.Context, uid pod.UID, still func() bool) error {
	m.mu.Lock()
	var keys []string
	for _, c := range m.claimsOfLocked(uid) {
		keys = append(keys, c.key())
	}
	m.forgetLocked(uid)
	m.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	began := time.Now()
	err := m.release(ctx, uid, keys, still)
	m.metrics.operation("UnprepareResources", began, err)
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) release(ctx context.Context, uid pod.UID, keys []string, still func() bool) error {
	leave, err := m.enter(ctx, keys)
	if err != nil {
		return err
	}
	defer leave()
	last := m.leave(uid, still)
	var errs []error
	stuck := map[*claim]error{}
	for _, driver := range driversOf(last) {
		claims := withDriver(last, driver)
		if err := m.unprepareWith(ctx, uid, driver, claims); err != nil {
			errs = append(errs, err)
			for _, c := range claims {
				stuck[c] = err
			}
		}
	}
	m.mu.Lock()
	for _, c := range last {
		if err := stuck[c]; err != nil {
			if ctx.Err() == nil {
				c.failure = err.Error()
			}
			continue
		}
		delete(m.claims, c.key())
		m.revision++
	}
	if len(m.claimsOfLocked(uid)) == 0 {
		delete(m.leftovers, uid)
	}
	m.mu.Unlock()
	return errors.Join(append(errs, m.save())...)
}

// leave ends a pod's use of the claims that others use, too, and returns those of which it is
// the last user: it stays that until they are unprepared.
func (m *Manager) leave(uid pod.UID, still func() bool) (last []*claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !still() {
		return nil
	}
	for _, c := range m.claimsOfLocked(uid) {
		if len(c.pods) == 1 {
			// What is not certain to be prepared any more must be prepared for the next pod.
			c.prepared = false
			last = append(last, c)
			continue
		}
		delete(c.pods, uid)
		m.revision++
	}
	return last
}

// unprepareWith has one driver unprepare its part of claims, whose gates the caller has.
func (m *Manager) unprepareWith(ctx context.Context, uid pod.UID, driver string, claims []*claim) error {
	var response *drapb.NodeUnprepareResourcesResponse
	err := m.call(ctx, uid, driver, "NodeUnprepareResources", func(ctx context.Context, api drapb.DRAPluginClient) (err error) {
		response, err = api.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: messages(claims)})
		return err
	})
	if err != nil {
		return err
	}
	return complete("NodeUnprepareResources", claims, response.GetClaims())
}

// Retain has the claims of pods unprepared that keep does not name: they were removed while
// podd did not run. It does not block: that is tried until it succeeds.
func (m *Manager) Retain(keep map[pod.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		for uid := range c.pods {
			if !keep[uid] {
				m.dropLocked(uid)
			}
		}
	}
}

// Drop is Unprepare for a pod that nobody waits for: it does not block, and is tried until it
// succeeds.
func (m *Manager) Drop(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.claimsOfLocked(uid)) > 0 {
		m.dropLocked(uid)
	}
}

func (m *Manager) dropLocked(uid pod.UID) {
	m.leftovers[uid] = true
	m.retryAt = time.Time{}
	m.loop.Wake()
}

// retryLeftovers is a task of Run.
func (m *Manager) retryLeftovers(ctx context.Context) {
	m.mu.Lock()
	uids := slices.Sorted(maps.Keys(m.leftovers))
	m.retryAt = time.Now().Add(m.times.leftovers)
	m.mu.Unlock()
	for _, uid := range uids {
		err := m.unprepare(ctx, uid, func() bool { return m.leftovers[uid] })
		if err != nil && ctx.Err() == nil {
			m.log.Info("cannot unprepare the claims of a pod that is gone: trying again", "uid", uid, "error", err)
		}
	}
	m.mu.Lock()
	m.retrying = false
	m.mu.Unlock()
	m.loop.Wake()
}
