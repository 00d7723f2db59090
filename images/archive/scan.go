package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settleAfter is the delay before a file that is being written is checked again, unless it
// is closed before.
const settleAfter = 2 * time.Second

// suffixes are the suffixes of archives; other files are ignored.
var suffixes = []string{".tar", ".tar.gz", ".tgz", ".tar.zst"}

// file is a file of an image directory.
type file struct {
	path  string
	stamp fileStamp
}

// candidates lists the archives, smallest first, so that the sandbox image does not wait
// for a large one. It leaves out files that may still be written; next is when to check
// them again.
func (d *Dir) candidates(closed map[string]struct{}, now time.Time) (found []file, next time.Duration) {
	there := map[string]struct{}{}
	for _, dir := range append([]string{d.cfg.Dir}, d.cfg.ExtraDirs...) {
		entries, err := d.list(dir)
		if err != nil {
			d.recordProblem(dir, err)
			there[dir] = struct{}{} // the problem stays
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if !isArchiveName(e.Name()) {
				continue
			}
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue // a dangling link, a directory, a pipe
			}
			there[path] = struct{}{}
			if wait := settleDelay(path, info, now); wait > 0 && !d.state.isCurrent(path, stampOf(info)) {
				if _, ok := closed[path]; !ok {
					next = max(next, wait)
					continue
				}
			}
			found = append(found, file{path: path, stamp: stampOf(info)})
		}
	}
	d.pruneProblems(there)
	slices.SortStableFunc(found, func(a, b file) int { return int(min(max(a.stamp.Size-b.stamp.Size, -1), 1)) })
	return found, next
}

// list reads an image directory. The first one is created if it is missing; others
// may be missing.
func (d *Dir) list(dir string) ([]fs.DirEntry, error) {
	if dir == d.cfg.Dir {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the image directory: %w", err)
		}
	}
	entries, err := os.ReadDir(dir)
	switch {
	case dir != d.cfg.Dir && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the image directory: %w", err)
	}
	return entries, nil
}

// settleDelay returns how long to leave a file alone, or 0. The kernel grants a read lease
// only on a file that nobody has open for writing. On a filesystem without leases, the
// file's age decides.
func settleDelay(path string, info fs.FileInfo, now time.Time) time.Duration {
	f, err := os.Open(path)
	if err != nil {
		return 0 // the import will report why
	}
	defer f.Close() // which releases the lease
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch age := now.Sub(info.ModTime()); {
	case err == nil:
		return 0
	case errors.Is(err, unix.EAGAIN):
		return settleAfter
	case age >= 0 && age < settleAfter:
		return settleAfter - age
	default:
		return 0
	}
}

func isArchiveName(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}
