package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Usage returns the memory usage of a pod in bytes, or of one of its containers
// if its runtime ID is given. It includes the page cache, as the kernel
// compares it with a limit.
func (t *Tree) Usage(p *v1.Pod, containerID string) (int64, error) {
	mount, ok := t.facts.Controllers["memory"]
	if !ok {
		return 0, errors.New("the kernel has no memory controller")
	}
	_, rel := t.podPath(p)
	dir := filepath.Join(mount, rel)
	if containerID != "" {
		var err error
		if dir, err = containerDir(dir, containerID); err != nil {
			return 0, err
		}
	}
	name := "memory.current"
	if t.facts.Version != V2 {
		name = "memory.usage_in_bytes"
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// MemoryLimit returns the current memory limit of a pod's cgroup and the one
// that p specifies, in bytes; 0 means none.
func (t *Tree) MemoryLimit(p *v1.Pod) (now, next int64) {
	have, _ := t.appliedLimits(p.UID)
	return have.Memory, PodLimits(t.settings, p).Memory
}

// containerDir returns a container's cgroup: runtimes name it after the
// container's ID, with a prefix and a suffix under systemd.
func containerDir(dir, id string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() && strings.Contains(e.Name(), id) {
			return filepath.Join(dir, e.Name()), nil
		}
	}
	return "", fmt.Errorf("no cgroup of container %.12s in %s", id, dir)
}
