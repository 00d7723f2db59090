package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// containerLog is the location of a container's log and its link.
type containerLog struct {
	sandbox        string
	link           string // name in the links' directory
	log            string // path of the live log file
	terminationLog string // path of the termination log, if podd created one
	seenMark       uint64 // Files.listings when it was last seen
	linked         bool
}

// Link creates the links to the logs of a pod's observed containers, as log shippers
// expect them. It is called after a container was started, and after each
// observation, in case podd crashed between the start and the link. Existing links
// cost nothing. Link does not fail: the containers run, a log shipper merely misses a
// link, and the next Link retries it.
func (f *Files) Link(seen pod.Observed) {
	if seen.Name == "" {
		return // their owner is unknown
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		known, again := f.track(c.ID, containerLog{
			sandbox:        c.SandboxID,
			link:           linkName(seen.Name, seen.Namespace, c.Name, c.ID),
			log:            filepath.Clean(c.LogPath),
			terminationLog: c.TerminationLog,
		})
		if known.linked {
			continue
		}
		if err := f.link(c.ID, known); err != nil && !again {
			f.log.Warn("cannot link container log", "container", c.ID, "error", err)
		}
	}
}

// track adds what is not known yet; a known termination log stays.
func (f *Files) track(id string, what containerLog) (known containerLog, again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, again := f.containerLogs[id]
	if again && what.terminationLog == "" {
		what.terminationLog = old.terminationLog
	}
	what.seenMark, what.linked = f.listings, old.linked
	f.containerLogs[id] = what
	return what, again
}

// link creates a link, unless it exists.
func (f *Files) link(id string, k containerLog) error {
	if err := os.MkdirAll(f.dirs.ContainerLogs, 0o755); err != nil {
		return err
	}
	err := os.Symlink(k.log, filepath.Join(f.dirs.ContainerLogs, k.link))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if k, there := f.containerLogs[id]; there {
		k.linked = true
		f.containerLogs[id] = k
	}
	return nil
}

// MarkListing must be called before all pods are listed: what is linked afterwards may not
// be in that list.
func (f *Files) MarkListing() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listings++
	return f.listings
}

// PruneUnlisted forgets containers that are no longer listed because others removed them,
// and removes their links. Their logs are removed with the pod.
func (f *Files) PruneUnlisted(listed []pod.Summary, mark uint64) {
	there := map[string]bool{}
	for i := range listed {
		for id := range listed[i].Containers {
			there[id] = true
		}
	}
	f.removeLinks(func(id string, k containerLog) bool { return !there[id] && k.seenMark < mark })
}

// SandboxRemoved removes the links of a removed sandbox's containers. Their logs are
// removed with the pod (RemoveLogs).
func (f *Files) SandboxRemoved(sandbox string) {
	f.removeLinks(func(_ string, k containerLog) bool { return k.sandbox == sandbox })
}

// removeLinks forgets containers and removes their links.
func (f *Files) removeLinks(which func(id string, k containerLog) bool) {
	f.mu.Lock()
	var links []string
	for id, k := range f.containerLogs {
		if which(id, k) {
			links = append(links, k.link)
			delete(f.containerLogs, id)
		}
	}
	f.mu.Unlock()
	for _, name := range links {
		_ = os.Remove(filepath.Join(f.dirs.ContainerLogs, name)) // PruneLinks removes a dangling link later
	}
}

// ContainerRemoved removes the link and the termination log of a removed container,
// and its log with the rotated files. With keepLog, logs older than its predecessor's
// are removed instead: a pod that keeps having all its containers restarted must not
// fill the disk. What cannot be removed is logged.
func (f *Files) ContainerRemoved(id string, keepLog bool) {
	f.mu.Lock()
	k, ok := f.containerLogs[id]
	delete(f.containerLogs, id)
	f.mu.Unlock()
	if !ok {
		return
	}
	errs := []error{removeIfExists(filepath.Join(f.dirs.ContainerLogs, k.link)), removeIfExists(k.terminationLog)}
	if keepLog {
		errs = append(errs, f.removeOlderLogs(k.log))
	} else {
		rotated, err := filepath.Glob(k.log + ".*")
		errs = append(errs, err)
		for _, file := range append(rotated, k.log) {
			errs = append(errs, removeIfExists(file))
		}
	}
	if err := errors.Join(errs...); err != nil {
		f.log.Warn("cannot remove container log", "container", id, "error", err)
	}
}

// removeOlderLogs removes the logs that are older than those of a container's
// predecessor, which may be removed concurrently, and that belong to no container.
func (f *Files) removeOlderLogs(log string) error {
	dir, name := filepath.Split(log)
	own, ok := LogRestarts(name)
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
	there := f.trackedLogs()
	var errs []error
	for _, e := range entries {
		n, ok := LogRestarts(e.Name())
		if ok && n+1 < own && !e.IsDir() && !there[fmt.Sprintf("%s%d.log", dir, n)] {
			errs = append(errs, removeIfExists(dir+e.Name()))
		}
	}
	return errors.Join(errs...)
}

// trackedLogs are those of the known containers.
func (f *Files) trackedLogs() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	logs := make(map[string]bool, len(f.containerLogs))
	for _, k := range f.containerLogs {
		logs[k.log] = true
	}
	return logs
}

// RemoveLogs removes the log directory of a removed pod. Nothing may be written to it
// any more: call it after the last sandbox was removed.
func (f *Files) RemoveLogs(p *v1.Pod) error {
	if p.Namespace == "" || p.Name == "" || p.UID == "" || strings.ContainsRune(p.Namespace+p.Name+string(p.UID), filepath.Separator) {
		return fmt.Errorf("remove pod logs: %q/%q %q does not name a pod", p.Namespace, p.Name, p.UID)
	}
	err := os.RemoveAll(f.dirs.Logs(p.Namespace, p.Name, p.UID))
	if errors.Is(err, unix.ENAMETOOLONG) {
		return nil // no file system has such a directory: there never was one
	}
	if err != nil {
		return fmt.Errorf("remove pod logs: %w", err)
	}
	return nil
}

// OrphanedLogs finds the log directory of a pod by its UID alone, and returns the names that
// the directory has; ok is false if the pod has no such directory. It removes the links to
// these logs: the runtime no longer has their containers.
func (f *Files) OrphanedLogs(uid pod.UID) (namespace, name string, ok bool, err error) {
	entries, err := os.ReadDir(f.dirs.PodLogs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", false, nil
	}
	if err != nil {
		return "", "", false, fmt.Errorf("look for the logs of %s: %w", uid, err)
	}
	for _, e := range entries {
		if namespace, name, ok = pod.ParseLogDirectory(e.Name(), uid); ok && e.IsDir() {
			dir := f.dirs.Logs(namespace, name, uid) + "/"
			return namespace, name, true, f.pruneLinks(linkPrefix(name, namespace), func(target string) bool { return strings.HasPrefix(target, dir) })
		}
	}
	return "", "", false, nil
}

// PruneLinks removes podd's links to logs that are gone, as after a crash of podd
// between a removal and its clean-up. Call it at start.
func (f *Files) PruneLinks() error {
	return f.pruneLinks("", func(target string) bool {
		_, err := os.Stat(target)
		return strings.HasPrefix(target, f.dirs.PodLogs+"/") && errors.Is(err, fs.ErrNotExist) // other links are not podd's
	})
}

// pruneLinks removes the links that have a name with the prefix and a target that matches.
func (f *Files) pruneLinks(prefix string, match func(target string) bool) error {
	entries, err := os.ReadDir(f.dirs.ContainerLogs)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("prune log links: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		path := filepath.Join(f.dirs.ContainerLogs, e.Name())
		if target, err := os.Readlink(path); err == nil && match(target) {
			errs = append(errs, removeIfExists(path))
		}
	}
	return errors.Join(errs...)
}
