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

// Usage is the memory in bytes that a pod uses, or one container of it when its
// runtime ID is given, page cache included: what the kernel compares with a
// limit.
func (t *Tree) Usage(p *v1.Pod, containerID string) (int64, error) {
	mount, ok := t.facts.Controllers["memory"]
	if !ok {
		return 0, errors.New("the kernel has no memory controller")
	}
	_, rel := t.place(p)
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

// MemoryLimit is what a pod's group is held to and what p asks for, in bytes; 0
// for none.
func (t *Tree) MemoryLimit(p *v1.Pod) (now, next int64) {
	have, _ := t.known(p.UID)
	return have.Memory, PodLimits(t.settings, p).Memory
}

// containerDir is a container's group: runtimes name it after the container,
// with a prefix and a suffix under systemd.
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
