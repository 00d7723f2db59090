package cgroup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podd/internal/pod"
)

// HasProcesses reports whether a process is in any of a pod's cgroups, or below, in any
// hierarchy and for any QoS class. A missing cgroup has no processes.
func (t *Tree) HasProcesses(uid pod.UID) (bool, error) {
	var errs []error
	for _, rel := range t.podPaths(uid) {
		for _, mount := range t.facts.Mounts {
			busy, err := populated(filepath.Join(mount, rel))
			if busy {
				return true, nil
			}
			errs = append(errs, err)
		}
	}
	return false, errors.Join(errs...)
}

// LostContainers returns the cgroups directly below a pod's that have processes and a name
// without any of the known IDs, which are those of the sandboxes and containers that the
// runtime lists. In such a cgroup runs a container that the runtime has lost track of.
// LostContainers reads one hierarchy, since a container is in all of them, in about ten
// system calls.
func (t *Tree) LostContainers(uid pod.UID, known []string) ([]string, error) {
	for _, rel := range t.podPaths(uid) {
		dir := filepath.Join(t.facts.Mounts[0], rel)
		entries, err := os.ReadDir(dir)
		if gone(err) {
			continue
		}
		errs := []error{err}
		var lost []string
		for _, e := range entries {
			if !e.IsDir() || slices.ContainsFunc(known, func(id string) bool { return strings.Contains(e.Name(), id) }) {
				continue
			}
			busy, err := populated(filepath.Join(dir, e.Name()))
			if busy {
				lost = append(lost, filepath.Join(dir, e.Name()))
			}
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil || len(lost) > 0 {
			return lost, err
		}
	}
	return nil, nil
}

// podPaths returns the paths of a pod's cgroup, one for each QoS class.
func (t *Tree) podPaths(uid pod.UID) []string {
	var all []string
	for _, class := range classes {
		rel := parent(t.driver, t.root, class, uid)
		if t.driver == Systemd {
			rel = slicePath(rel)
		}
		all = append(all, rel)
	}
	return all
}

// populated reports whether a process is in a cgroup or in one below it.
func populated(dir string) (bool, error) {
	// On the unified hierarchy this covers all descendants.
	if events, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err == nil {
		return bytes.Contains(events, []byte("populated 1")), nil
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if gone(err) {
		return false, nil
	}
	if err != nil || len(procs) > 0 {
		return err == nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, ignoreGone(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if busy, err := populated(filepath.Join(dir, e.Name())); busy || err != nil {
			return busy, err
		}
	}
	return false, nil
}

func ignoreGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}
