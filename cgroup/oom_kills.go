package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"podd/internal/pod"
)

// OOMKills returns how many processes of a pod the OOM killer has killed since the
// pod's cgroup was created, including those in cgroups below it that are gone.
// It is 0 if there is no such cgroup, and on v1, which counts each cgroup
// alone.
func (t *Tree) OOMKills(uid pod.UID) (int64, error) {
	if t.facts.Version != V2 || uid == "" {
		return 0, nil
	}
	for _, class := range classes {
		rel := parent(t.driver, t.root, class, uid)
		if t.driver == Systemd {
			rel = slicePath(rel)
		}
		text, err := os.ReadFile(filepath.Join(t.facts.Controllers["memory"], rel, "memory.events"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
				return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			}
		}
		return 0, fmt.Errorf("memory.events of %s has no oom_kill", rel)
	}
	return 0, nil
}
