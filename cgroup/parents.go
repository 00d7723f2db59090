package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// ensureParents creates the cgroups above the pods', once, and again if requested.
func (t *Tree) ensureParents(ctx context.Context, again bool) error {
	t.parentsMu.Lock()
	defer t.parentsMu.Unlock()
	if t.parentsReady && !again {
		return nil
	}
	t.parentsReady = false
	above := levels(t.rootRel())
	if err := t.delegate("/"); err != nil {
		t.warn(err)
	}
	if t.driver == Systemd {
		if err := t.keepSlicesAtShutdown(ctx); err != nil {
			t.warn(err)
		}
	}
	for i, rel := range above {
		l := Limits{CPUShares: rootLimits(t.settings.Pods).CPUShares}
		if i == len(above)-1 {
			l = rootLimits(t.settings.Pods)
		} else if t.exists(rel) {
			l = Limits{} // not podd's alone: keep the weight it has
		}
		unlimited, err := t.ensureParent(ctx, rel, l)
		if i == len(above)-1 {
			t.reportLimits(rel, errors.Join(unlimited, err))
		}
		if err != nil {
			return err
		}
	}
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if _, err := t.ensureParent(ctx, t.classPath(class), Limits{CPUShares: pod.MinCPUShares}); err != nil {
			return err
		}
	}
	t.clearProtection(ctx)
	if above := t.unprotectedParent(); above != "" && t.settings.Log != nil {
		t.settings.Log.Warn("memoryReservationPolicy has no effect: the cgroup of cgroupRoot protects no memory itself, and podd does not change it; set its memory.min and memory.low", "cgroup", above)
	}
	t.mu.Lock()
	t.written = totals{} // unknown after the cgroups were recreated
	t.mu.Unlock()
	t.parentsReady = true
	return nil
}

// ensureParent creates one cgroup above the pods'. Limits that cannot be set, such as
// one below what the pods already use, do not keep pods from running. unlimited is the error
// of setting them.
func (t *Tree) ensureParent(ctx context.Context, rel string, l Limits) (unlimited, err error) {
	if t.driver == Systemd {
		if _, err := t.startSlice(ctx, path.Base(rel), l); err != nil {
			return nil, err
		}
	}
	if _, err := t.mkdir(rel); err != nil {
		return nil, fmt.Errorf("make cgroup %s: %w", rel, err)
	}
	if unlimited = t.apply(rel, Limits{}, l); unlimited != nil {
		t.warn(unlimited)
	}
	if err := t.delegate(rel); err != nil {
		t.warn(err)
	}
	return unlimited, nil
}

// reportLimits tells OnLimits whether all pods together are limited, and again only when that
// changes. The caller holds parentsMu.
func (t *Tree) reportLimits(rel string, err error) {
	if t.settings.Pods == nil || t.settings.OnLimits == nil {
		return
	}
	outcome := fmt.Sprint(err)
	if outcome == t.limitsReported {
		return
	}
	t.limitsReported = outcome
	t.settings.OnLimits("/"+strings.Trim(rel, "/"), err)
}

// warn logs problems that do not keep pods from running.
func (t *Tree) warn(err error) {
	if t.settings.Log != nil {
		t.settings.Log.Warn("cannot set up a cgroup above the pods", "error", err)
	}
}

// rootRel returns the path of the cgroup above all pods.
func (t *Tree) rootRel() string {
	if t.driver == Systemd {
		return slicePath(sliceName(strings.Split(strings.Trim(t.root, "/"), "/")))
	}
	return path.Clean(t.root)
}

// classPath returns the path of a QoS class's cgroup.
func (t *Tree) classPath(class v1.PodQOSClass) string {
	parts := append(strings.Split(strings.Trim(t.root, "/"), "/"), strings.ToLower(string(class)))
	if t.driver == Systemd {
		return slicePath(sliceName(parts))
	}
	return "/" + path.Join(parts...)
}

// totals are sums over the pods that this podd knows.
type totals struct {
	burstableShares int64 // 0 if unknown
	// guaranteed and burstable are the memory that pods of that class protect, in bytes.
	guaranteed, burstable int64
}

// MemoryReservations returns the memory in bytes that is protected for Guaranteed pods by
// memory.min, and for Burstable ones by memory.low.
func (t *Tree) MemoryReservations() (guaranteed, burstable int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.sumUp()
	return all.guaranteed, all.burstable
}

// sumUp sums up the requests; the caller holds mu.
func (t *Tree) sumUp() totals {
	var all totals
	milli := int64(0)
	for _, g := range t.pods {
		milli += g.burstableMilli
		all.guaranteed += g.limits.MemoryQoS.Min
		all.burstable += g.limits.MemoryQoS.Low
	}
	all.burstableShares = pod.CPUShares(milli)
	return all
}

// updateTotals updates the cgroups above the pods' after a change of the pods. The weight of
// the burstable class is the sum of its pods' requests: the guaranteed pods are its siblings,
// and best effort has the minimum. Memory is protected only if each cgroup above protects it.
//
// One call at a time writes. When several pods start at once, the last one writes for all.
func (t *Tree) updateTotals(ctx context.Context) {
	t.totalsMu.Lock()
	defer t.totalsMu.Unlock()
	t.mu.Lock()
	want, have := t.sumUp(), t.written
	t.mu.Unlock()
	if want == have {
		return
	}
	if err := t.writeTotals(ctx, have, want); err != nil {
		t.warn(err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written = want
}

func (t *Tree) writeTotals(ctx context.Context, have, want totals) error {
	tiered := t.settings.MemoryQoS.Tiered
	var errs []error
	if tiered && (have.guaranteed != want.guaranteed || have.burstable != want.burstable || have.burstableShares == 0) {
		// As upstream: the root's memory.min covers the burstable pods, too.
		l := protection(pod.MemoryQoS{Min: want.guaranteed + want.burstable, Low: want.burstable})
		for _, rel := range t.ownParents() {
			errs = append(errs, t.setParent(ctx, rel, l))
		}
	}
	l := Limits{CPUShares: want.burstableShares}
	if tiered {
		l = protection(pod.MemoryQoS{Low: want.burstable})
		l.CPUShares = want.burstableShares
	}
	return errors.Join(append(errs, t.setParent(ctx, t.classPath(v1.PodQOSBurstable), l))...)
}

// protection sets the memory that a cgroup above the pods' protects.
func protection(q pod.MemoryQoS) Limits {
	q.High = keepHigh
	return Limits{MemoryQoS: q, SetMemoryQoS: true}
}

// setParent sets limits of an existing cgroup above the pods'.
func (t *Tree) setParent(ctx context.Context, rel string, l Limits) error {
	if t.driver == Systemd {
		if err := t.units.set(ctx, path.Base(rel), t.properties(l)); err != nil {
			return err
		}
	}
	return t.apply(rel, Limits{}, l)
}

// ownParents returns the cgroups above the QoS classes that are podd's alone, from the top.
// Those above a configured root are the administrator's.
func (t *Tree) ownParents() []string {
	if t.root == DefaultRoot {
		return levels(t.rootRel())
	}
	return []string{t.rootRel()}
}

// clearProtection removes the protection that an earlier configuration has set above the pods,
// if this one protects nothing. It does not look at podd's cgroups above the root, because podd
// protects them together with the root.
func (t *Tree) clearProtection(ctx context.Context) {
	if t.facts.Version != V2 || t.settings.MemoryQoS.Tiered {
		return
	}
	var stale []string
	if t.protects(t.rootRel()) {
		stale = t.ownParents()
	}
	if burstable := t.classPath(v1.PodQOSBurstable); t.protects(burstable) {
		stale = append(stale, burstable)
	}
	for _, rel := range stale {
		if err := t.setParent(ctx, rel, protection(pod.MemoryQoS{})); err != nil {
			t.warn(err)
		}
	}
}

// protects says whether a cgroup has a memory.min or memory.low.
func (t *Tree) protects(rel string) bool {
	for _, name := range []string{memoryMin, memoryLow} {
		text, err := os.ReadFile(filepath.Join(t.facts.Controllers["memory"], rel, name))
		if value := strings.TrimSpace(string(text)); err == nil && value != "" && value != "0" {
			return true
		}
	}
	return false
}

// unprotectedParent returns the cgroup above a configured root if it protects nothing: the
// kernel then protects nothing below it. Otherwise it returns "".
func (t *Tree) unprotectedParent() string {
	above := path.Dir(t.rootRel())
	if !t.settings.MemoryQoS.Tiered || t.root == DefaultRoot || above == "/" || t.protects(above) {
		return ""
	}
	return above
}
