package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podd/internal/wipe"
)

const (
	dataLink      = "..data"
	newLink       = "..data_tmp"
	versionFormat = "..2006_01_02_15_04_05." // followed by a random number
)

// Write makes files, by their paths, the content of dir, an existing directory. group,
// unless nil, owns the written files and may read them. changed says that readers see
// another version than before. After an error without changed, the current version is as it
// was. After one with changed, only leftovers of the previous version could not be removed,
// and the next Write retries that.
func Write(ctx context.Context, dir string, files map[string]File, group *int64) (changed bool, err error) {
	w := &writer{dir: dir, group: group}
	return w.write(ctx, files)
}

// HasVersion says whether dir has a current version.
func HasVersion(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, dataLink))
	return err == nil && info.IsDir()
}

// writer performs one Write.
type writer struct {
	dir   string
	group *int64
	dirFD int // descriptor of dir
	// fault injects errors into steps, in tests.
	fault func(step string) error
}

func (w *writer) write(ctx context.Context, files map[string]File) (changed bool, err error) {
	t, err := buildTree(files)
	if err != nil {
		return false, err
	}
	if w.dirFD, err = unix.Open(w.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return false, &os.PathError{Op: "open", Path: w.dir, Err: err}
	}
	defer unix.Close(w.dirFD)
	names, err := readNames(w.dirFD)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", w.dir, err)
	}
	old := w.currentVersion()
	stale := w.removeLeftovers(ctx, names, old)
	if old != "" && w.sameVersion(old, t) {
		linked, err := w.createLinks(t)
		removed, unlinkErr := w.unlinkStale(names, t)
		return len(linked) > 0 || removed, errors.Join(stale, err, unlinkErr)
	}
	if err := w.writeVersion(ctx, t); err != nil {
		return false, err
	}
	_, err = w.unlinkStale(names, t)
	if old != "" {
		err = errors.Join(err, w.wipe(ctx, old))
	}
	return true, errors.Join(stale, err)
}

// currentVersion returns the name of the current version's directory; empty if there is none,
// or ..data is not a link that this package writes.
func (w *writer) currentVersion() string {
	name, err := readlink(w.dirFD, dataLink)
	if err != nil || !isReserved(name) || strings.Contains(name, "/") || name == ".." || name == dataLink || name == newLink {
		return ""
	}
	return name
}

// removeLeftovers removes what earlier calls left: everything reserved that is not the current
// version.
func (w *writer) removeLeftovers(ctx context.Context, names []string, inUse string) error {
	var errs []error
	for _, name := range names {
		if !isReserved(name) || name == inUse {
			continue
		}
		if name == dataLink {
			if _, err := readlink(w.dirFD, name); err == nil {
				continue // a foreign link: the rename replaces it
			}
		}
		errs = append(errs, w.wipe(ctx, name))
	}
	return errors.Join(errs...)
}

// writeVersion writes the tree and makes it the current version; after an error, it removes
// what it wrote.
func (w *writer) writeVersion(ctx context.Context, t *tree) error {
	name := time.Now().UTC().Format(versionFormat) + fmt.Sprint(rand.Uint32())
	err := w.writeDir(w.dirFD, name, t)
	var linked []string
	if err == nil {
		// Before the swap, because the disk may be full. Until the swap the new links
		// dangle: readers of a new file do not find it, as before.
		linked, err = w.createLinks(t)
	}
	if err == nil {
		err = w.step("link new version", func() error { return unix.Symlinkat(name, w.dirFD, newLink) })
	}
	if err == nil {
		err = w.step("swap", func() error { return unix.Renameat(w.dirFD, newLink, w.dirFD, dataLink) })
	}
	if err == nil {
		return nil
	}
	for _, made := range append(linked, newLink) {
		_ = w.step("undo link", func() error { return unix.Unlinkat(w.dirFD, made, 0) }) // the next Write retries
	}
	_ = w.wipe(ctx, name)
	return fmt.Errorf("write a new version of %s: %w", w.dir, err)
}

// createLinks creates the missing links of the root and returns their names.
func (w *writer) createLinks(t *tree) (made []string, err error) {
	for _, name := range t.names() {
		to := dataLink + "/" + name
		found, err := readlink(w.dirFD, name)
		if err == nil && found == to || isDir(w.dirFD, name) { // a directory is a mount point, or was created for a subPath
			continue
		}
		if !errors.Is(err, unix.ENOENT) {
			if err := w.step("remove non-link", func() error { return unix.Unlinkat(w.dirFD, name, 0) }); err != nil {
				return made, fmt.Errorf("replace %s: %w", name, err)
			}
		}
		if err := w.step("link", func() error { return unix.Symlinkat(to, w.dirFD, name) }); err != nil {
			return made, fmt.Errorf("link %s: %w", name, err)
		}
		made = append(made, name)
	}
	return made, nil
}

// unlinkStale removes the root's links to files that no longer exist.
func (w *writer) unlinkStale(names []string, t *tree) (any bool, err error) {
	var errs []error
	for _, name := range names {
		if isReserved(name) || t.has(name) {
			continue
		}
		if to, err := readlink(w.dirFD, name); err != nil || to != dataLink+"/"+name {
			continue
		}
		if err := w.step("unlink", func() error { return unix.Unlinkat(w.dirFD, name, 0) }); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", name, err))
			continue
		}
		any = true
	}
	return any, errors.Join(errs...)
}

func (w *writer) wipe(ctx context.Context, name string) error {
	return w.step("wipe", func() error { return wipe.Tree(ctx, w.dir, name) })
}

// step performs one change on disk, unless a test makes it fail.
func (w *writer) step(what string, do func() error) error {
	if w.fault != nil {
		if err := w.fault(what); err != nil {
			return err
		}
	}
	return do()
}

func readNames(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return names, err
}

func readlink(dir int, name string) (string, error) {
	to := make([]byte, maxPath)
	n, err := unix.Readlinkat(dir, name, to)
	if err != nil {
		return "", err
	}
	return string(to[:n]), nil
}

func isDir(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
