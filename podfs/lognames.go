package podfs

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"podd/internal/pod"
)

// ContainerLogPath is the log of a container with this restart count, relative to its
// pod's log directory.
func ContainerLogPath(container string, restarts int32) string {
	return filepath.Join(container, strconv.Itoa(int(restarts))+".log")
}

// LogRestarts is the restart count in the name of a log, 3.log, or of one of its
// rotated files, 3.log.20060102-150405.gz; ok is false for other files.
func LogRestarts(name string) (restarts int64, ok bool) {
	number, _, isLog := strings.Cut(name, ".log")
	n, err := strconv.ParseInt(number, 10, 32)
	return n, isLog && err == nil && n >= 0
}

// linkName is <pod>_<namespace>_<container>-<id>.log, truncated to the length of a
// file name.
func linkName(podName, namespace, container, id string) string {
	const suffix = ".log"
	name := fmt.Sprintf("%s_%s_%s-%s", podName, namespace, container, id)
	return name[:min(len(name), pod.MaxFileNameLength-len(suffix))] + suffix
}

// linkPrefix is how the names of all links of a pod begin.
func linkPrefix(podName, namespace string) string {
	prefix := podName + "_" + namespace + "_"
	return prefix[:min(len(prefix), pod.MaxFileNameLength-len(".log"))]
}
