package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// setUpPod sets up the pod's directory and volumes; the pod's lock is held.
func (m *Mounter) setUpPod(ctx context.Context, o *podSetUp) error {
	p := o.pod
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := m.finishUnmount(ctx, p.UID); err != nil {
		return pod.WithReason(reasonFailedMount, err)
	}
	for _, dir := range []string{m.dirs.Pod(p.UID), m.dirs.Containers(p.UID)} {
		if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return pod.WithReason(reasonFailedMount, fmt.Errorf("make the pod's directory: %w", err))
		}
	}
	m.setUpVolumes(ctx, o)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	failures := o.failedLocked()
	return pod.WithReason(reasonOf(failures), errors.Join(failures...))
}

// setUpOne sets one volume up, or refreshes it.
func (m *Mounter) setUpOne(ctx context.Context, p *v1.Pod, v *v1.Volume) error {
	if err := safeName("volume name", v.Name); err != nil {
		return err
	}
	if pod.ClaimName(p, v) != "" && !m.isReady(p.UID, v.Name) {
		m.options.Claims.AwaitClaim(ctx, p, v)
	}
	k, t, err := m.resolve(p, v)
	if err != nil {
		return err
	}
	start := time.Now()
	if m.isReady(p.UID, v.Name) {
		err := k.refresh(ctx, t)
		if err != nil && !pod.IsObjectPending(err) {
			m.metrics.observe(k.plugin, "volume_mount", start, err)
		}
		if err != nil && k.live && ctx.Err() == nil {
			m.Changed(p.UID) // reports the error and retries
			return nil
		}
		return err
	}
	if t.bound != nil {
		if err := m.checkClaimUse(k, t); err != nil {
			return err
		}
	}
	err = k.setUp(ctx, t)
	if t.bound != nil && t.bound.Block() {
		err = pod.WithReason(reasonFailedMap, err)
	}
	if l, isLive := k.driver.(*liveDriver); isLive && pod.IsAPIServerUnavailable(err) && l.isSetUp(t) {
		// An earlier podd has set it up. While the apiserver is away its content counts, as
		// it does for the containers that run; the next answer refreshes it.
		err = nil
	}
	if !pod.IsObjectPending(err) {
		m.metrics.observe(k.plugin, "volume_mount", start, err)
	}
	if err == nil && ctx.Err() == nil { // a canceled setup must not mark a later one's volumes ready
		m.markReady(p.UID, v.Name, k.plugin)
		m.markBound(t)
	}
	return err
}

func (m *Mounter) isReady(uid pod.UID, volume string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.stateOf(uid).ready[volume]
	return ok
}

func (m *Mounter) markReady(uid pod.UID, volume, plugin string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updateState(uid, func(p *podVolumes) {
		if p.ready == nil {
			p.ready = map[string]string{}
		}
		p.ready[volume] = plugin
	})
}

// markBound records the binding of a volume, for as long as it is ready.
func (m *Mounter) markBound(t target) {
	if t.bound == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updateState(t.pod.UID, func(p *podVolumes) {
		if p.bound == nil {
			p.bound = map[string]pod.BoundVolume{}
		}
		p.bound[t.volume.Name] = *t.bound
	})
}

// markNotReadyLocked marks all of the pod's volumes as not ready.
func (m *Mounter) markNotReadyLocked(uid pod.UID) {
	m.updateState(uid, func(p *podVolumes) { p.ready, p.bound = nil, nil })
}
