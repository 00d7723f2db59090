package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

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
	if !known {
		want.Memory = t.adoptedMemory(p, want.Memory)
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
	t.updateTotals(ctx)
	return nil
}

// Raise gives a running pod the greater of what it has and what p specifies, in each
// resource: before its containers are resized. Update then applies p. Concurrency is
// as with Ensure. If the limits change, Raise calls announce first; an error of announce
// leaves them unchanged. announce may be nil.
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
	have, known := t.appliedLimits(p.UID)
	changed := want
	changed.SetMemoryQoS = want.SetMemoryQoS && (!known || want.MemoryQoS != have.MemoryQoS)
	if props := t.properties(changed); t.driver == Systemd && len(props) > 0 {
		if err := t.units.set(ctx, name, props); err != nil {
			return err
		}
	}
	if err := t.apply(rel, have, want); err != nil {
		return err
	}
	t.recordLimits(p, want)
	t.updateTotals(ctx)
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
	made := false
	if t.driver == Systemd {
		var err error
		if made, err = t.startSlice(ctx, name, l); err != nil {
			return err
		}
	}
	dir, err := t.mkdir(rel)
	if err != nil {
		return err
	}
	// A new cgroup has no MemoryQoS yet; an existing one may have that of another
	// configuration.
	return t.apply(rel, Limits{SetMemoryQoS: made || dir}, l)
}

// startSlice creates a slice, or sets the properties of an existing one.
func (t *Tree) startSlice(ctx context.Context, name string, l Limits) (made bool, err error) {
	parent := path.Base(path.Dir(slicePath(name)))
	if parent == "/" {
		parent = "-.slice"
	}
	fresh := l
	fresh.SetMemoryQoS = l.SetMemoryQoS && l.MemoryQoS != (pod.MemoryQoS{})
	made, err = t.units.start(ctx, name, append(sliceProperties(parent, "Pods of podd: "+name), t.properties(fresh)...))
	if err != nil || made {
		return made, err
	}
	if props := t.properties(l); len(props) > 0 {
		err = t.units.set(ctx, name, props)
	}
	return false, err
}
