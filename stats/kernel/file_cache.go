package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/filewatch"
)

const (
	// maxFiles bounds how many files of cgroups stay open between readings: those of some 450
	// pods of one container. The rest is opened at each reading. A pod has about 36 on v1,
	// and each file that has been read holds a page of kernel memory.
	maxFiles = 16384
	// maxDirs bounds how many of their directories stay open, and are watched: those of some
	// 1,000 pods. A directory costs a tenth of what a file does.
	maxDirs = 16384
)

// fileCache keeps files of cgroups open between readings: to open and close one costs five
// times as much as to read it. A read of a kernel file always returns the
// present state, and fails once the cgroup was removed. Numbers of a removed cgroup are
// therefore never taken for those of a new one with its name. Settings are not read again
// until a file of their directory has been written.
type fileCache struct {
	mostFiles, mostDirs int                     // 0 for none
	writes              *filewatch.WriteWatcher // nil for none

	mu      sync.Mutex
	handles map[string]*handles // by path; what is being read is not in it
	fds     map[int]struct{}    // of all handles
	dirs    int                 // of them
}

// newFileCache returns a cache that keeps nothing open unless all hierarchies are the
// kernel's: removed files of other file systems can still be read.
func newFileCache(mounts map[string]string) *fileCache {
	k := &fileCache{handles: map[string]*handles{}, fds: map[int]struct{}{}}
	for _, mount := range mounts {
		var fs unix.Statfs_t
		if unix.Statfs(mount, &fs) != nil || fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC {
			return k
		}
	}
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil { // the rest of podd needs some, too
		k.mostFiles, k.mostDirs = int(min(maxFiles, files.Cur/4)), int(min(maxDirs, files.Cur/2))
	}
	// Others need watches, too. Without any, all is read each time.
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches"); err == nil {
		k.writes, _ = filewatch.NewWriteWatcher(int(min(maxDirs, parseNumber(text)/4)))
	}
	return k
}

// acquire returns the handles of a cgroup, for the caller alone until it releases them;
// nothing is open if there are none, or somebody else has them.
func (k *fileCache) acquire(rel string) *handles {
	k.mu.Lock()
	h := k.handles[rel]
	delete(k.handles, rel)
	k.mu.Unlock()
	if h == nil {
		return &handles{cache: k}
	}
	if k.writes != nil {
		k.writes.Poll()
	}
	for _, d := range h.dirs {
		if d.mark != nil && d.mark.Written() {
			d.settings = d.settings[:0]
		}
	}
	return h
}

// release caches handles for the next acquire.
func (k *fileCache) release(rel string, h *handles) {
	h.used = true
	for _, d := range h.dirs {
		if d.hasSettings && d.mark == nil && k.writes != nil { // by descriptor: another may have its name by now
			d.mark = k.writes.Add("/proc/self/fd/" + strconv.Itoa(d.fd))
		}
	}
	k.mu.Lock()
	if k.handles[rel] == nil && len(h.dirs) > 0 {
		k.handles[rel], h = h, nil
	}
	k.mu.Unlock()
	if h != nil {
		h.close()
	}
}

// sweep closes the handles of cgroups that were not read since the last sweep.
func (k *fileCache) sweep() {
	k.mu.Lock()
	var old []*handles
	for rel, h := range k.handles {
		if !h.used {
			old = append(old, h)
			delete(k.handles, rel)
		}
		h.used = false
	}
	k.mu.Unlock()
	for _, h := range old {
		h.close()
	}
}

// hold reports whether a file may stay open; it does until drop.
func (k *fileCache) hold(fd int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.fds)-k.dirs >= k.mostFiles {
		return false
	}
	k.fds[fd] = struct{}{}
	return true
}

// holdDir is hold for a directory; it stays open until dropDir.
func (k *fileCache) holdDir(fd int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dirs >= k.mostDirs {
		return false
	}
	k.fds[fd] = struct{}{}
	k.dirs++
	return true
}

// drop closes a file. It is forgotten before: its number may be another file's at once.
func (k *fileCache) drop(fd int) {
	k.mu.Lock()
	delete(k.fds, fd)
	k.mu.Unlock()
	_ = unix.Close(fd)
}

func (k *fileCache) dropDir(d *openDir) {
	if d.mark != nil {
		d.mark.Remove()
	}
	k.mu.Lock()
	k.dirs--
	k.mu.Unlock()
	k.drop(d.fd)
}

// has reports whether a file descriptor, as /proc names it, is one that stays open.
func (k *fileCache) has(name string) bool {
	fd, err := strconv.Atoi(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.fds[fd]
	return ok && err == nil
}

// handles are the open directories of a cgroup, one in each hierarchy, and files in them.
type handles struct {
	cache *fileCache // has them stay open between readings; nil to have them closed by reads.close
	dirs  []*openDir
	used  bool // since the last sweep
}

type openDir struct {
	path    string
	fd      int
	files   []openFile
	created time.Time // zero until somebody asked
	// stays is false if there was no room: the directory is closed after the reading.
	stays bool

	mark        *filewatch.Mark // nil if nobody tells when a setting is written
	settings    []setting       // as they were last read, since it has a mark
	hasSettings bool            // some were asked for
}

// setting is the text of a file that only changes when somebody writes it.
type setting struct {
	name string
	text []byte
}

type openFile struct {
	name string
	fd   int
}

// enter opens a directory unless it is open.
func (h *handles) enter(path string) (*openDir, error) {
	for _, d := range h.dirs {
		if d.path == path {
			return d, nil
		}
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, errMissing
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH):
		return nil, ErrGone
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	d := &openDir{path: path, fd: fd, stays: h.cache != nil && h.cache.holdDir(fd)}
	h.dirs = append(h.dirs, d)
	return d, nil
}

// read returns the content of a file of a directory, and has it stay open if there is room.
func (h *handles) read(f *file, d *openDir, name string, whole bool) ([]byte, error) {
	for i := range d.files {
		if d.files[i].name == name {
			return f.readFD(d.files[i].fd, name, whole)
		}
	}
	fd, err := openAt(d.fd, name)
	if err != nil {
		return nil, err
	}
	// While cgroup.procs is open, v1 repeats the list of a read within the last second.
	if d.stays && name != "cgroup.procs" && h.cache.hold(fd) {
		d.files = append(d.files, openFile{name, fd})
	} else {
		defer func() { _ = unix.Close(fd) }()
	}
	return f.readFD(fd, name, whole)
}

// setting returns the content of a file that the kernel does not change by itself, nil where
// it is missing. It is not read again until a file of the directory has been written.
//
// A directory that was removed must be noticed by a file that is read each time.
func (h *handles) setting(f *file, d *openDir, name string) ([]byte, error) {
	d.hasSettings = d.stays
	for _, s := range d.settings {
		if s.name == name {
			return s.text, nil
		}
	}
	text, err := f.getAt(d.fd, name, true)
	if err == nil && d.mark != nil {
		d.settings = append(d.settings, setting{name, bytes.Clone(text)})
	}
	return text, err
}

// close closes everything.
func (h *handles) close() {
	h.closeWhere(func(*openDir) bool { return true })
}

// trim closes what there was no room for.
func (h *handles) trim() {
	h.closeWhere(func(d *openDir) bool { return !d.stays })
}

func (h *handles) closeWhere(match func(*openDir) bool) {
	h.dirs = slices.DeleteFunc(h.dirs, func(d *openDir) bool {
		if !match(d) {
			return false
		}
		if !d.stays {
			_ = unix.Close(d.fd)
			return true
		}
		for _, f := range d.files {
			h.cache.drop(f.fd)
		}
		h.cache.dropDir(d)
		return true
	})
}
