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

// Tree is podd's part of the hierarchies.
type Tree struct {
	facts     Facts
	driver    Driver
	root      string
	settings  Settings
	units     units
	pageSizes []int64

	prepMu   sync.Mutex // held while the groups above the pods' are made
	prepared bool       // guarded by prepMu

	weighMu sync.Mutex // held by who writes the burstable class' weight

	mu        sync.Mutex // guards what follows
	pods      map[pod.UID]group
	burstable int64 // shares last written; 0 for not known
}

// group is what this podd made of a pod's group.
type group struct {
	limits Limits
	// burstableMilli is the pod's request, if it is of that class.
	burstableMilli int64
}

// NewTree takes the driver that the runtime uses, which CRI's RuntimeConfig
// tells, and the root as the cgroupfs driver writes it. It touches nothing.
func NewTree(facts Facts, driver Driver, root string, settings Settings) *Tree {
	return &Tree{
		facts: facts, driver: driver, root: root, settings: settings, units: &bus{},
		pageSizes: slices.Sorted(maps.Keys(hugepage.OfKernel(hugepage.Dir))), pods: map[pod.UID]group{},
	}
}

func (t *Tree) known(uid pod.UID) (Limits, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.pods[uid]
	return g.limits, ok
}

func (t *Tree) note(p *v1.Pod, l Limits) {
	g := group{limits: l}
	if pod.QOSClass(p) == v1.PodQOSBurstable {
		requests := helper.PodRequests(p, helper.PodResourcesOptions{})
		g.burstableMilli = requests.Cpu().MilliValue()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[p.UID] = g
}

// Parent is Parent for this tree.
func (t *Tree) Parent(p *v1.Pod) string { return Parent(t.driver, t.root, p) }

// Remove removes what is left of a pod's groups, in every hierarchy and whatever
// its class was; nothing left is no error. It must be called after the pod's
// last sandbox is gone: a group with a process in it stays, with an error that
// names it, and so do its parents.
func (t *Tree) Remove(ctx context.Context, uid pod.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), "/\x00") {
		return fmt.Errorf("remove cgroup of pod: bad UID %q", uid)
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
		// systemd would keep the unit of a slice that it did not stop itself.
		if t.driver == Systemd && there && len(errs) == 0 {
			if err := t.units.stop(ctx, name); err != nil {
				errs = append(errs, err)
			}
		}
	}
	t.mu.Lock()
	delete(t.pods, uid)
	used := t.burstable != 0
	t.mu.Unlock()
	if used {
		t.weighBurstable(ctx)
	}
	return errors.Join(errs...)
}

// RemoveRoot removes what is left of the whole tree, parents included, as far as
// no process is in it: for the end of everything, not for the end of a pod.
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
		// The parents are ours only as long as they are empty.
		for up := filepath.Dir(dir); up != mount && strings.HasPrefix(up, mount); up = filepath.Dir(up) {
			if syscall.Rmdir(up) != nil {
				break
			}
		}
	}
	if t.driver == Systemd && errors.Join(errs...) == nil {
		errs = append(errs, t.stopAbove(ctx))
	}
	return errors.Join(errs...)
}

// stopAbove has systemd forget the slices above the pods' that are gone, lowest
// first. One whose directory cannot be removed is somebody else's too; that it is
// there says nothing, for systemd makes it anew when a slice below it stops.
func (t *Tree) stopAbove(ctx context.Context) error {
	var errs []error
	above := append(levels(t.rootRel()), t.tier(v1.PodQOSBurstable), t.tier(v1.PodQOSBestEffort))
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

// Pods lists the UIDs that have a group in any hierarchy, sorted. With the
// systemd driver dashes of a UID come back as underscores: compare with Matches.
func (t *Tree) Pods() ([]pod.UID, error) {
	found := map[pod.UID]struct{}{}
	var errs []error
	for _, class := range classes {
		// A UID that cannot be one shows where the others are, and how named.
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

// Matches says whether a name that Pods returned is that pod's.
func Matches(listed, uid pod.UID) bool {
	return listed == uid || string(listed) == strings.ReplaceAll(string(uid), "-", "_")
}

// removeTree removes a group and those below it, lowest first. A group is a
// directory of files that vanish with it: only rmdir works, and only when no
// process is in it (EBUSY).
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
