package dra

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podd/internal/wake"
)

// sliceDeletion is a deletion of a driver's ResourceSlices in progress. cancel gives it up when the
// driver is back.
type sliceDeletion struct{ cancel context.CancelFunc }

// WipeResourceSlices deletes the ResourceSlices of all drivers of this node: none has
// registered yet, and pods must not be scheduled for devices that may not come back. Drivers
// publish them again. Call it at podd's start, once the Node is registered. It blocks until
// that has succeeded or ctx ends.
func (m *Manager) WipeResourceSlices(ctx context.Context) { m.deleteSlices(ctx, "") }

// updateWipeLocked checks whether a driver is away, or back, and records it.
func (m *Manager) updateWipeLocked(driver string) {
	for _, i := range m.drivers[driver] {
		if !i.connected {
			continue
		}
		delete(m.wipeAt, driver)
		if w := m.wiping[driver]; w != nil {
			delete(m.wiping, driver)
			w.cancel()
		}
		return
	}
	if _, planned := m.wipeAt[driver]; !planned && m.wiping[driver] == nil {
		m.wipeAt[driver] = time.Now().Add(m.times.wipeDelay)
	}
}

// wipeLocked starts to delete the ResourceSlices of a driver that has been away for long.
func (m *Manager) wipeLocked(driver string) {
	own, cancel := context.WithCancel(context.Background())
	w := &sliceDeletion{cancel: cancel}
	m.wiping[driver] = w
	m.loop.Go(func(ctx context.Context) {
		defer context.AfterFunc(ctx, cancel)()
		m.deleteSlices(own, driver)
		cancel()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.wiping[driver] == w {
			delete(m.wiping, driver)
		}
	})
}

// deleteSlices retries until it succeeds or ctx ends.
func (m *Manager) deleteSlices(ctx context.Context, driver string) {
	for delay := m.times.wipeBackoff.Initial; ctx.Err() == nil; delay = m.times.wipeBackoff.Next(delay) {
		err := m.cluster.DeleteResourceSlices(ctx, m.node, driver)
		if err == nil || apierrors.IsNotFound(err) { // a cluster that does not have such objects
			m.log.Debug("deleted ResourceSlices", "driver", driver)
			return
		}
		m.log.Debug("cannot delete ResourceSlices: trying again", "driver", driver, "error", err, "retry_in", delay)
		wake.Sleep(ctx, delay)
	}
}
