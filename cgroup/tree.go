package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"

	"podd/internal/hugepage"
	"podd/internal/pod"
)

var classes = []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

// Tree is podd's subtree of the cgroup hierarchies.
type Tree struct {
	facts     Facts
	driver    Driver
	root      string
	settings  Settings
	units     units
	unitDirs  []string
	pageSizes []int64

	parentsMu    sync.Mutex // held while the cgroups above the pods' are created
	parentsReady bool       // guarded by parentsMu
	// limitsReported is the last outcome given to OnLimits; guarded by parentsMu.
	limitsReported string

	totalsMu sync.Mutex // held while totals are written

	mu      sync.Mutex // guards what follows
	pods    map[pod.UID]podState
	written totals // last written
}

// podState is what this process has set on a pod's cgroup.
type podState struct {
	limits Limits
	// burstableMilli is the pod's CPU request if its QoS class is Burstable.
	burstableMilli int64
}

// NewTree takes the runtime's driver, as CRI's RuntimeConfig reports it, and the
// root in the cgroupfs driver's notation. It touches nothing.
func NewTree(facts Facts, driver Driver, root string, settings Settings) *Tree {
	return &Tree{
		facts: facts, driver: driver, root: root, settings: settings, units: &bus{}, unitDirs: unitDirs,
		pageSizes: slices.Sorted(maps.Keys(hugepage.Reserved(hugepage.Dir))), pods: map[pod.UID]podState{},
	}
}

func (t *Tree) appliedLimits(uid pod.UID) (Limits, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.pods[uid]
	return g.limits, ok
}

func (t *Tree) recordLimits(p *v1.Pod, l Limits) {
	g := podState{limits: l}
	if pod.QOSClass(p) == v1.PodQOSBurstable {
		requests := helper.PodRequests(p, helper.PodResourcesOptions{})
		g.burstableMilli = requests.Cpu().MilliValue()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[p.UID] = g
}

// Parent returns the pod's cgroup; see the function Parent.
func (t *Tree) Parent(p *v1.Pod) string { return Parent(t.driver, t.root, p) }

// Remove removes what is left of a pod's cgroups, in every hierarchy and for
// every QoS class; if nothing is left, it returns nil. Call it after the pod's
// last sandbox is gone: a cgroup that still has a process is kept, with its
// parents, and the error names it.
func (t *Tree) Remove(ctx context.Context, uid pod.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("remove cgroup of pod: invalid UID %q", uid)
	}
	var errs []error
	for _, class := range classes {
		name := parent(t.driver, t.root, class, uid)
		rel := name
		if t.driver == Systemd {
			rel = slicePath(name)
		}
		there := false
		for _, mount := range t.facts.Mounts {
			dir := filepath.Join(mount, rel)
			if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			there = true
			if err := removeTree(dir); err != nil {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
		// systemd keeps the unit of a slice that it did not stop itself.
		if t.driver == Systemd && there && len(errs) == 0 {
			if err := t.units.stop(ctx, name); err != nil {
				errs = append(errs, err)
			}
		}
	}
	t.mu.Lock()
	delete(t.pods, uid)
	used := t.written.burstableShares != 0
	t.mu.Unlock()
	if used {
		t.updateTotals(ctx)
	}
	return errors.Join(errs...)
}

// RemoveRoot removes what is left of the whole tree, parents included, except for cgroups
// that still have a process. Use it to tear the node down, not to end a pod.
func (t *Tree) RemoveRoot(ctx context.Context) error {
	uids, err := t.Pods()
	errs := []error{err}
	for _, uid := range uids {
		errs = append(errs, t.Remove(ctx, uid))
	}
	for _, mount := range t.facts.Mounts {
		dir := filepath.Join(mount, t.rootRel())
		if err := removeTree(dir); err != nil {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
		// The parents are removed only if they are empty: others may use them.
		for up := filepath.Dir(dir); up != mount && strings.HasPrefix(up, mount); up = filepath.Dir(up) {
			if syscall.Rmdir(up) != nil {
				break
			}
		}
	}
	if t.driver == Systemd && errors.Join(errs...) == nil {
		errs = append(errs, t.stopParentSlices(ctx))
	}
	return errors.Join(errs...)
}

// stopParentSlices stops the slices above the pods' that are gone, lowest first. If the
// directory of a slice cannot be removed, others use the slice, too. An existing
// directory proves nothing: systemd recreates it when a slice below it stops.
func (t *Tree) stopParentSlices(ctx context.Context) error {
	var errs []error
	above := append(levels(t.rootRel()), t.classPath(v1.PodQOSBurstable), t.classPath(v1.PodQOSBestEffort))
	for _, rel := range slices.Backward(above) {
		used := slices.ContainsFunc(t.facts.Mounts, func(mount string) bool {
			err := syscall.Rmdir(filepath.Join(mount, rel))
			return err != nil && !gone(err)
		})
		if !used {
			errs = append(errs, t.units.stop(ctx, path.Base(rel)))
		}
	}
	return errors.Join(errs...)
}

// Pods lists the UIDs of pods with a cgroup in any hierarchy, sorted. With the
// systemd driver, dashes in a UID come back as underscores: compare with Matches.
func (t *Tree) Pods() ([]pod.UID, error) {
	found := map[pod.UID]struct{}{}
	var errs []error
	for _, class := range classes {
		// An empty UID gives the parent directory and the prefix of the names.
		name := parent(t.driver, t.root, class, "")
		dir, prefix := filepath.Dir(name), "pod"
		if t.driver == Systemd {
			stem := strings.TrimSuffix(name, ".slice")
			dir, prefix = filepath.Dir(slicePath(name)), stem
		}
		for _, mount := range t.facts.Mounts {
			entries, err := os.ReadDir(filepath.Join(mount, dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			for _, e := range entries {
				uid, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".slice"), prefix)
				if e.IsDir() && ok && uid != "" {
					found[pod.UID(uid)] = struct{}{}
				}
			}
		}
	}
	uids := make([]pod.UID, 0, len(found))
	for uid := range found {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids, errors.Join(errs...)
}

// Matches reports whether a name that Pods returned is that of the pod uid.
func Matches(listed, uid pod.UID) bool {
	return listed == uid || string(listed) == strings.ReplaceAll(string(uid), "-", "_")
}

// removeTree removes a cgroup and those below it, lowest first. The files of a
// cgroup vanish with its directory: only rmdir works, and only when no process is
// in it (EBUSY).
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("a process is still in it: %w", err)
		}
		return err
	}
	return nil
}
