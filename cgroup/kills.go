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

// Kills is how many processes of a pod the kernel has killed for want of memory
// since the pod's group was made, those in groups below it that are gone
// included. It is 0 where there is no such group, and on v1, where the count is
// of one group alone.
func (t *Tree) Kills(uid pod.UID) (int64, error) {
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
		return 0, fmt.Errorf("memory.events of %s counts no kills", rel)
	}
	return 0, nil
}
