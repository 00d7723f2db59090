package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Ensure creates a pod's cgroup with its limits, and those above it. Call it before
// the runtime creates the pod's sandbox, and again whenever the cgroup may be gone.
// If it is as it should be, Ensure costs a few system calls. An existing one gets the
// limits of p. Calls for one pod must not overlap; for different pods they may.
func (t *Tree) Ensure(ctx context.Context, p *v1.Pod) error {
	name, rel := t.podPath(p)
	want := PodLimits(t.settings, p)
	have, known := t.appliedLimits(p.UID)
	if known && same(have, want) && t.exists(rel) {
		return nil
	}
	if err := t.ensureParents(ctx, false); err != nil {
		return err
	}
	err := t.createCgroup(ctx, name, rel, want)
	if errors.Is(err, fs.ErrNotExist) { // a parent was removed meanwhile
		if err = t.ensureParents(ctx, true); err == nil {
			err = t.createCgroup(ctx, name, rel, want)
		}
	}
	if err != nil {
		return fmt.Errorf("make cgroup %s: %w", rel, err)
	}
	t.recordLimits(p, want)
	t.updateBurstableWeight(ctx)
	return nil
}

// Raise gives a running pod the greater of what it has and what p specifies, in each
// resource: before its containers are resized. Update then applies p. Concurrency is
// as with Ensure. announce is called first, if the limits change; its error keeps them as they
// are. It may be nil.
func (t *Tree) Raise(ctx context.Context, p *v1.Pod, announce func(from, to Limits) error) error {
	have, known := t.appliedLimits(p.UID)
	if !known {
		return t.Ensure(ctx, p)
	}
	return t.changeLimits(ctx, p, maxLimits(have, PodLimits(t.settings, p)), announce)
}

// Update applies the limits of p to a running pod. A limit that p no longer has stays
// as it was, as upstream. A memory limit below the pod's usage is rejected by the
// kernel on v1, and triggers OOM kills on v2: check Usage first. announce is as with Raise.
func (t *Tree) Update(ctx context.Context, p *v1.Pod, announce func(from, to Limits) error) error {
	return t.changeLimits(ctx, p, PodLimits(t.settings, p), announce)
}

func (t *Tree) changeLimits(ctx context.Context, p *v1.Pod, want Limits, announce func(from, to Limits) error) error {
	if have, known := t.appliedLimits(p.UID); known && announce != nil && !same(have, want) {
		if err := announce(have, want); err != nil {
			return err
		}
	}
	return t.setLimits(ctx, p, want)
}

func (t *Tree) setLimits(ctx context.Context, p *v1.Pod, want Limits) error {
	name, rel := t.podPath(p)
	have, _ := t.appliedLimits(p.UID)
	if props := t.properties(want); t.driver == Systemd && len(props) > 0 {
		if err := t.units.set(ctx, name, props); err != nil {
			return err
		}
	}
	if err := t.apply(rel, have, want); err != nil {
		return err
	}
	t.recordLimits(p, want)
	t.updateBurstableWeight(ctx)
	return nil
}

// podPath returns the pod's cgroup as CRI names it, and its path.
func (t *Tree) podPath(p *v1.Pod) (name, rel string) {
	name = t.Parent(p)
	if t.driver == Systemd {
		return name, slicePath(name)
	}
	return name, name
}

// createCgroup creates one cgroup with its limits; its parent must exist.
func (t *Tree) createCgroup(ctx context.Context, name, rel string, l Limits) error {
	if t.driver == Systemd {
		if err := t.startSlice(ctx, name, l); err != nil {
			return err
		}
	}
	if _, err := t.mkdir(rel); err != nil {
		return err
	}
	return t.apply(rel, Limits{}, l)
}

// startSlice creates a slice, or sets the properties of an existing one.
func (t *Tree) startSlice(ctx context.Context, name string, l Limits) error {
	parent := path.Base(path.Dir(slicePath(name)))
	if parent == "/" {
		parent = "-.slice"
	}
	props := t.properties(l)
	made, err := t.units.start(ctx, name, append(sliceProperties(parent, "Pods of podd: "+name), props...))
	if err != nil || made || len(props) == 0 {
		return err
	}
	return t.units.set(ctx, name, props)
}

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
	t.mu.Lock()
	t.writtenBurstableShares = 0 // unknown after the cgroups were recreated
	t.mu.Unlock()
	t.parentsReady = true
	return nil
}

// ensureParent creates one cgroup above the pods'. Limits that cannot be set, such as
// one below what the pods already use, do not keep pods from running; unlimited says why.
func (t *Tree) ensureParent(ctx context.Context, rel string, l Limits) (unlimited, err error) {
	if t.driver == Systemd {
		if err := t.startSlice(ctx, path.Base(rel), l); err != nil {
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

// reportLimits passes on whether all pods together are limited, once until that changes. The
// caller holds parentsMu.
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

// updateBurstableWeight sets the weight of the burstable class to the sum of its pods'
// requests; the guaranteed pods are its siblings, and best effort has the minimum.
// One at a time: of several pods that start at once, the last one writes for all.
func (t *Tree) updateBurstableWeight(ctx context.Context) {
	t.weightMu.Lock()
	defer t.weightMu.Unlock()
	t.mu.Lock()
	want, have := t.burstableShares(), t.writtenBurstableShares
	t.mu.Unlock()
	if want == have {
		return
	}
	if err := t.setBurstableWeight(ctx, want); err != nil {
		t.warn(err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writtenBurstableShares = want
}

func (t *Tree) setBurstableWeight(ctx context.Context, shares int64) error {
	l := Limits{CPUShares: shares}
	rel := t.classPath(v1.PodQOSBurstable)
	if t.driver == Systemd {
		if err := t.units.set(ctx, path.Base(rel), t.properties(l)); err != nil {
			return err
		}
	}
	return t.apply(rel, Limits{}, l)
}

// burstableShares sums up the requests; the caller holds mu.
func (t *Tree) burstableShares() int64 {
	sum := int64(0)
	for _, g := range t.pods {
		sum += g.burstableMilli
	}
	return pod.CPUShares(sum)
}
