package podfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// containerLog is where a container's log is and what leads to it.
type containerLog struct {
	sandbox string
	link    string // name in the links' directory
	log     string // path of the live log file
	message string // path of the termination log, if podd made one
	learnt  uint64 // Files.marks when it was last seen
	linked  bool
}

// Link sees to it that the logs of a pod's observed containers have their links,
// as log shippers expect them: after a container was started, and after each
// observation, for a podd that was killed between the start and the link makes up
// for it so. What is linked costs nothing. Link does not fail: the containers run,
// only a log shipper misses a link, which the next Link tries again.
func (f *Files) Link(seen pod.Observed) {
	if seen.Name == "" {
		return // nobody knows whose they are
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		known, again := f.learn(c.ID, containerLog{
			sandbox: c.SandboxID,
			link:    linkName(seen.Name, seen.Namespace, c.Name, c.ID),
			log:     filepath.Clean(c.LogPath),
			message: c.TerminationLog,
		})
		if known.linked {
			continue
		}
		if err := f.link(c.ID, known); err != nil && !again {
			f.log.Warn("cannot link container log", "container", c.ID, "error", err)
		}
	}
}

// learn adds what is not known yet; a termination log, once known, stays.
func (f *Files) learn(id string, what containerLog) (known containerLog, again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, again := f.known[id]
	if again && what.message == "" {
		what.message = old.message
	}
	what.learnt, what.linked = f.marks, old.linked
	f.known[id] = what
	return what, again
}

// link makes a link. One that is there is right.
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
	if k, there := f.known[id]; there {
		k.linked = true
		f.known[id] = k
	}
	return nil
}

// Mark is to be taken before a list of all pods is asked for: what is linked
// after it may not be in that list.
func (f *Files) Mark() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marks++
	return f.marks
}

// KeepOnly forgets containers that are not listed any more, which somebody else
// has removed, with their links. Their logs go with the pod.
func (f *Files) KeepOnly(listed []pod.Summary, mark uint64) {
	there := map[string]bool{}
	for i := range listed {
		for id := range listed[i].Containers {
			there[id] = true
		}
	}
	f.unlink(func(id string, k containerLog) bool { return !there[id] && k.learnt < mark })
}

// SandboxRemoved takes away the links of a removed sandbox's containers. Their
// logs go with the pod (RemoveLogs).
func (f *Files) SandboxRemoved(sandbox string) {
	f.unlink(func(_ string, k containerLog) bool { return k.sandbox == sandbox })
}

// unlink forgets containers and takes away their links.
func (f *Files) unlink(which func(id string, k containerLog) bool) {
	f.mu.Lock()
	var links []string
	for id, k := range f.known {
		if which(id, k) {
			links = append(links, k.link)
			delete(f.known, id)
		}
	}
	f.mu.Unlock()
	for _, name := range links {
		_ = os.Remove(filepath.Join(f.dirs.ContainerLogs, name)) // a dead link is swept by PruneLinks
	}
}

// ContainerRemoved takes away the link and the termination log of a removed
// container, and its log with the rotated files. With keepLog, logs that are older
// than its predecessor's go instead: a pod that has all its containers restarted
// for ever must not fill the disk. What cannot be removed is logged.
func (f *Files) ContainerRemoved(id string, keepLog bool) {
	f.mu.Lock()
	k, ok := f.known[id]
	delete(f.known, id)
	f.mu.Unlock()
	if !ok {
		return
	}
	errs := []error{removeIfThere(filepath.Join(f.dirs.ContainerLogs, k.link)), removeIfThere(k.message)}
	if keepLog {
		errs = append(errs, f.removeEarlier(k.log))
	} else {
		rotated, err := filepath.Glob(k.log + ".*")
		errs = append(errs, err)
		for _, file := range append(rotated, k.log) {
			errs = append(errs, removeIfThere(file))
		}
	}
	if err := errors.Join(errs...); err != nil {
		f.log.Warn("cannot remove container log", "container", id, "error", err)
	}
}

// removeEarlier removes the logs that are older than those of a container's
// predecessor, which may be removed at the same time, and that no container has.
func (f *Files) removeEarlier(log string) error {
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
	there := f.logs()
	var errs []error
	for _, e := range entries {
		n, ok := LogRestarts(e.Name())
		if ok && n+1 < own && !e.IsDir() && !there[fmt.Sprintf("%s%d.log", dir, n)] {
			errs = append(errs, removeIfThere(dir+e.Name()))
		}
	}
	return errors.Join(errs...)
}

// logs are those of the containers that are known.
func (f *Files) logs() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	logs := make(map[string]bool, len(f.known))
	for _, k := range f.known {
		logs[k.log] = true
	}
	return logs
}

// RemoveLogs removes the log directory of a pod that is gone. Nothing in it may
// still be written: call it after the last sandbox was removed.
func (f *Files) RemoveLogs(p *v1.Pod) error {
	if p.Namespace == "" || p.Name == "" || p.UID == "" || strings.ContainsRune(p.Namespace+p.Name+string(p.UID), filepath.Separator) {
		return fmt.Errorf("remove pod logs: %q/%q %q does not name a pod", p.Namespace, p.Name, p.UID)
	}
	if err := os.RemoveAll(f.dirs.Logs(p.Namespace, p.Name, p.UID)); err != nil {
		return fmt.Errorf("remove pod logs: %w", err)
	}
	return nil
}

// PruneLinks removes links of podd's whose log is gone, as after a kill of podd
// between a removal and its clean-up. Call it at start.
func (f *Files) PruneLinks() error {
	entries, err := os.ReadDir(f.dirs.ContainerLogs)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("prune log links: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(f.dirs.ContainerLogs, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, f.dirs.PodLogs+"/") {
			continue // only links into the pods' logs are podd's
		}
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, removeIfThere(path))
		}
	}
	return errors.Join(errs...)
}
