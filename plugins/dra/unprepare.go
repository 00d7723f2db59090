package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"podd/internal/pod"
)

// HasPrepared says that a pod has claims that must be unprepared when it has ended.
func (m *Manager) HasPrepared(uid pod.UID) bool {
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

// Unprepare ends a pod's use of its claims, when the pod no longer runs. Drivers
// unprepare the claims that no other pod uses. It is idempotent, and blocks while drivers
// work, or until ctx ends. After an error, call it again; the pod is woken when a missing
// driver is there.
func (m *Manager) Unprepare(ctx context.Context, uid pod.UID) error {
	return m.unprepare(ctx, uid, func() bool { return true })
}

// unprepare is Unprepare. It asks still, with the lock held, once it is the pod's turn, and
// does nothing if that is false.
func (m *Manager) unprepare(ctx context.Context, uid pod.UID, still func() bool) error {
	m.mu.Lock()
	var keys []string
	for _, c := range m.claimsOfLocked(uid) {
		keys = append(keys, c.key())
	}
	m.removeWaitingLocked(uid)
	m.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	began := time.Now()
	err := m.releaseClaims(ctx, uid, keys, still)
	m.metrics.operation("UnprepareResources", began, err)
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) releaseClaims(ctx context.Context, uid pod.UID, keys []string, still func() bool) error {
	unlockAll, err := m.lockClaims(ctx, keys)
	if err != nil {
		return err
	}
	defer unlockAll()
	last := m.dropShared(uid, still)
	var errs []error
	stuck := map[*claim]error{}
	for _, driver := range driversOf(last) {
		claims := m.toCall(withDriver(last, driver), driver, resourcev1.SkipNodeOperationNodeUnprepareResources)
		if len(claims) == 0 {
			continue
		}
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
				c.unprepareError = err.Error()
			}
			continue
		}
		delete(m.claims, c.key())
		m.revision++
	}
	if len(m.claimsOfLocked(uid)) == 0 {
		delete(m.orphanedPods, uid)
	}
	m.mu.Unlock()
	return errors.Join(append(errs, m.save())...)
}

// dropShared ends a pod's use of claims that others use, too. It returns the claims that only
// this pod uses: it remains their user until they are unprepared.
func (m *Manager) dropShared(uid pod.UID, still func() bool) (last []*claim) {
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

// unprepareWith makes one driver unprepare its part of claims. The caller holds their
// locks.
func (m *Manager) unprepareWith(ctx context.Context, uid pod.UID, driver string, claims []*claim) error {
	var response *drapb.NodeUnprepareResourcesResponse
	err := m.call(ctx, uid, driver, "NodeUnprepareResources", func(ctx context.Context, api drapb.DRAPluginClient) (err error) {
		response, err = api.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claimMessages(claims)})
		return err
	})
	if err != nil {
		return err
	}
	return checkResults("NodeUnprepareResources", claims, response.GetClaims())
}

// Retain unprepares the claims of pods that keep does not name: they were removed while
// podd did not run. It does not block: Run retries until it succeeds.
func (m *Manager) Retain(keep map[pod.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		for uid := range c.pods {
			if !keep[uid] {
				m.queueUnprepareLocked(uid)
			}
		}
	}
}

// Drop is Unprepare for a pod that nobody waits for: it does not block, and Run retries
// until it succeeds.
func (m *Manager) Drop(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.claimsOfLocked(uid)) > 0 {
		m.queueUnprepareLocked(uid)
	}
}

func (m *Manager) queueUnprepareLocked(uid pod.UID) {
	m.orphanedPods[uid] = true
	m.retryAt = time.Time{}
	m.loop.Wake()
}

// unprepareOrphaned is a task of Run.
func (m *Manager) unprepareOrphaned(ctx context.Context) {
	m.mu.Lock()
	uids := slices.Sorted(maps.Keys(m.orphanedPods))
	m.retryAt = time.Now().Add(m.times.unprepareRetry)
	m.mu.Unlock()
	for _, uid := range uids {
		err := m.unprepare(ctx, uid, func() bool { return m.orphanedPods[uid] })
		if err != nil && ctx.Err() == nil {
			m.log.Info("cannot unprepare the claims of a pod that is gone: trying again", "uid", uid, "error", err)
		}
	}
	m.mu.Lock()
	m.retrying = false
	m.mu.Unlock()
	m.loop.Wake()
}
