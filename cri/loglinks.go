package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// linkedLog is where a container's log is and what leads to it.
type linkedLog struct {
	sandbox string
	link    string // name in the links' directory
	log     string // path of the live log file
	message string // path of the termination log, if podd made one
	learnt  uint64 // logLinks.marks when it was last learnt
}

// logLinks keeps /var/log/containers: one link for each container's log, as log
// shippers expect it. What is known of a container is learnt at its creation,
// and from observing it after a restart of podd.
type logLinks struct {
	dir     string
	targets string // only links into this directory are podd's

	mu    sync.Mutex
	known map[string]linkedLog // by container ID; guarded by mu
	marks uint64               // how many lists were begun; guarded by mu
}

// linkName is <pod>_<namespace>_<container>-<id>.log, cut to what a file name holds.
func linkName(podName, namespace, container, id string) string {
	const suffix, longest = ".log", 255
	name := fmt.Sprintf("%s_%s_%s-%s", podName, namespace, container, id)
	return name[:min(len(name), longest-len(suffix))] + suffix
}

// learn adds what is not known yet; a termination log, once known, stays.
func (l *logLinks) learn(id string, what linkedLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.known[id]; ok && what.message == "" {
		what.message = old.message
	}
	what.learnt = l.marks
	l.known[id] = what
}

// mark is to be taken before a list of all containers is asked for: what is
// learnt after it may not be in that list.
func (l *logLinks) mark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks++
	return l.marks
}

// keepOnly forgets containers that are not listed any more, which somebody else
// has removed, with their links. Their logs go with the pod.
func (l *logLinks) keepOnly(listed []*runtimeapi.Container, mark uint64) {
	there := make(map[string]bool, len(listed))
	for _, k := range listed {
		there[k.Id] = true
	}
	l.mu.Lock()
	var links []string
	for id, k := range l.known {
		if !there[id] && k.learnt < mark {
			links = append(links, k.link)
			delete(l.known, id)
		}
	}
	l.mu.Unlock()
	l.unlink(links)
}

func (l *logLinks) unlink(names []string) {
	for _, name := range names {
		_ = os.Remove(filepath.Join(l.dir, name)) // a dead link is swept by PruneLogLinks
	}
}

func (l *logLinks) get(id string) (linkedLog, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.known[id]
	return k, ok
}

func (l *logLinks) forget(id string) (linkedLog, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.known[id]
	delete(l.known, id)
	return k, ok
}

// link makes the link of a started container. One that is there is right.
func (l *logLinks) link(id string) error {
	k, ok := l.get(id)
	if !ok {
		return nil // observed for the first time after its start: observe links it
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	err := os.Symlink(k.log, filepath.Join(l.dir, k.link))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// remove takes away the link and the termination log of a removed container, and
// its log with the rotated files. With keepLog, logs that are older than its
// predecessor's go instead: a pod that has all its containers restarted for ever
// must not fill the disk.
func (l *logLinks) remove(id string, keepLog bool) error {
	k, ok := l.forget(id)
	if !ok {
		return nil
	}
	errs := []error{removeIfThere(filepath.Join(l.dir, k.link)), removeIfThere(k.message)}
	if keepLog {
		return errors.Join(append(errs, l.removeEarlier(k.log))...)
	}
	errs = append(errs, removeIfThere(k.log))
	rotated, err := filepath.Glob(k.log + ".*")
	errs = append(errs, err)
	for _, r := range rotated {
		errs = append(errs, removeIfThere(r))
	}
	return errors.Join(errs...)
}

// removeEarlier removes the logs that are older than those of a container's
// predecessor, which may be removed at the same time, and that no container has.
func (l *logLinks) removeEarlier(log string) error {
	dir, name := filepath.Split(log)
	own, ok := logNumber(name)
	if !ok {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	there := l.logs()
	var errs []error
	for _, e := range entries {
		n, ok := logNumber(e.Name())
		if ok && n+1 < own && !e.IsDir() && !there[fmt.Sprintf("%s%d.log", dir, n)] {
			errs = append(errs, removeIfThere(dir+e.Name()))
		}
	}
	return errors.Join(errs...)
}

// logs are those of the containers that are known.
func (l *logLinks) logs() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	logs := make(map[string]bool, len(l.known))
	for _, k := range l.known {
		logs[k.log] = true
	}
	return logs
}

// logNumber is the restart count in a log's name, 3.log, and in one of its
// rotated files', 3.log.20060102-150405.gz.
func logNumber(name string) (n int64, ok bool) {
	number, _, isLog := strings.Cut(name, ".log")
	n, err := strconv.ParseInt(number, 10, 32)
	return n, isLog && err == nil && n >= 0
}

// removeSandbox takes away the links of a removed sandbox's containers. Their
// logs go with the pod (RemoveLogs).
func (l *logLinks) removeSandbox(sandbox string) {
	l.mu.Lock()
	var links []string
	for id, k := range l.known {
		if k.sandbox == sandbox {
			links = append(links, k.link)
			delete(l.known, id)
		}
	}
	l.mu.Unlock()
	l.unlink(links)
}

// RemoveLogs removes the log directory of a pod that is gone. Nothing in it may
// still be written: call it after the last sandbox was removed.
func (c *Client) RemoveLogs(p *v1.Pod) error {
	if p.Namespace == "" || p.Name == "" || p.UID == "" || strings.ContainsRune(p.Namespace+p.Name+string(p.UID), filepath.Separator) {
		return fmt.Errorf("remove pod logs: %q/%q %q does not name a pod", p.Namespace, p.Name, p.UID)
	}
	if err := os.RemoveAll(podLogDir(c.opts.PodLogsDir, p.Namespace, p.Name, p.UID)); err != nil {
		return fmt.Errorf("remove pod logs: %w", err)
	}
	return nil
}

// PruneLogLinks removes links of podd's whose log is gone, as after a kill of
// podd between a removal and its clean-up. Call it at start.
func (c *Client) PruneLogLinks() error {
	l := &c.links
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("prune log links: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(l.dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, l.targets+"/") {
			continue
		}
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, removeIfThere(path))
		}
	}
	return errors.Join(errs...)
}
