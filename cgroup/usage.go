package cgroup

import (
	"errors"
	"fmt"
	"math"
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
	text, err := t.readMemory(p, containerID, "memory.current", "memory.usage_in_bytes")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// readMemory returns the text of a file of the memory controller: nameV1 on cgroup v1, else name.
func (t *Tree) readMemory(p *v1.Pod, containerID, name, nameV1 string) (string, error) {
	mount, ok := t.facts.Controllers["memory"]
	if !ok {
		return "", errors.New("the kernel has no memory controller")
	}
	_, rel := t.podPath(p)
	dir := filepath.Join(mount, rel)
	if containerID != "" {
		var err error
		if dir, err = containerDir(dir, containerID); err != nil {
			return "", err
		}
	}
	if t.facts.Version != V2 {
		name = nameV1
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(text)), err
}

// adoptedMemory returns the memory limit in bytes, 0 for none, of a pod whose cgroup an earlier podd
// may have made. This is limit, unless the cgroup has a higher one and limit or more is in use. To
// lower it then would kill processes on v2, and fail on v1: an earlier podd has ended during a
// resize, which has to wait for memory.
func (t *Tree) adoptedMemory(p *v1.Pod, limit int64) int64 {
	if used, err := t.Usage(p, ""); limit == 0 || err != nil || used < limit {
		return limit
	}
	text, err := t.readMemory(p, "", "memory.max", "memory.limit_in_bytes")
	if err != nil {
		return limit
	}
	const unlimited = math.MaxInt64 &^ 0xffff // v1's, rounded down to a page of at most 64 KiB
	now, err := strconv.ParseInt(text, 10, 64)
	if err != nil || now >= unlimited { // v2 says "max"
		return 0
	}
	return max(now, limit)
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
