package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// RestartCounts are the least restart counts of a pod's next containers, by name, as
// shown by their logs: one more than the last log's number. A container without logs
// is not included. The logs of lost containers still exist, so that no count
// decreases and no log is overwritten.
func (f *Files) RestartCounts(p *v1.Pod) (map[string]int32, error) {
	counts := make(map[string]int32)
	var errs []error
	for spec := range pod.ContainerSpecs(&p.Spec) {
		entries, err := os.ReadDir(filepath.Join(f.dirs.Logs(p.Namespace, p.Name, p.UID), spec.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("list the logs of container %s: %w", spec.Name, err))
		}
		for _, e := range entries {
			if n, isLog := LogRestarts(e.Name()); isLog && !e.IsDir() && n < math.MaxInt32 {
				counts[spec.Name] = max(counts[spec.Name], int32(n)+1)
			}
		}
	}
	return counts, errors.Join(errs...)
}
