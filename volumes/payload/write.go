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
	dataLink = "..data"
	newLink  = "..data_tmp"
	versions = "..2006_01_02_15_04_05." // and a number
)

// Write makes files, by their paths, the content of dir, a directory that is
// there; group, unless nil, owns what is made and may read it. changed says that
// readers see another version than before. An error leaves the version in use as
// it was; with changed, what could not be done is to remove the one before, which
// the next Write tries again.
func Write(ctx context.Context, dir string, files map[string]File, group *int64) (changed bool, err error) {
	w := &writer{dir: dir, group: group}
	return w.write(ctx, files)
}

// InUse says whether dir has a version that readers see.
func InUse(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, dataLink))
	return err == nil && info.IsDir()
}

// writer is one Write.
type writer struct {
	dir   string
	group *int64
	top   int // dir, opened
	// fault fails a step on purpose, in tests.
	fault func(step string) error
}

func (w *writer) write(ctx context.Context, files map[string]File) (changed bool, err error) {
	t, err := grow(files)
	if err != nil {
		return false, err
	}
	if w.top, err = unix.Open(w.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return false, &os.PathError{Op: "open", Path: w.dir, Err: err}
	}
	defer unix.Close(w.top)
	names, err := list(w.top)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", w.dir, err)
	}
	old := w.version()
	stale := w.sweep(ctx, names, old)
	if old != "" && w.same(old, t) {
		linked, err := w.link(t)
		removed, dropErr := w.drop(names, t)
		return len(linked) > 0 || removed, errors.Join(stale, err, dropErr)
	}
	if err := w.replace(ctx, t); err != nil {
		return false, err
	}
	_, err = w.drop(names, t)
	if old != "" {
		err = errors.Join(err, w.wipe(ctx, old))
	}
	return true, errors.Join(stale, err)
}

// version is the name of the directory that is in use; empty for none that this
// package would have made.
func (w *writer) version() string {
	name, err := readlink(w.top, dataLink)
	if err != nil || !reserved(name) || strings.Contains(name, "/") || name == ".." || name == dataLink || name == newLink {
		return ""
	}
	return name
}

// sweep removes what earlier calls did not get to: all that is reserved and not
// in use.
func (w *writer) sweep(ctx context.Context, names []string, inUse string) error {
	var errs []error
	for _, name := range names {
		if !reserved(name) || name == inUse {
			continue
		}
		if name == dataLink {
			if _, err := readlink(w.top, name); err == nil {
				continue // leads nowhere: the rename replaces it
			}
		}
		errs = append(errs, w.wipe(ctx, name))
	}
	return errors.Join(errs...)
}

// replace makes the tree the version in use, or nothing.
func (w *writer) replace(ctx context.Context, t *tree) error {
	name := time.Now().UTC().Format(versions) + fmt.Sprint(rand.Uint32())
	err := w.directory(w.top, name, t)
	var linked []string
	if err == nil {
		// Before the swap, as they may not fit the disk: until then the new ones lead to
		// nothing, which is what their readers find anyway.
		linked, err = w.link(t)
	}
	if err == nil {
		err = w.step("link new version", func() error { return unix.Symlinkat(name, w.top, newLink) })
	}
	if err == nil {
		err = w.step("swap", func() error { return unix.Renameat(w.top, newLink, w.top, dataLink) })
	}
	if err == nil {
		return nil
	}
	for _, made := range append(linked, newLink) {
		_ = w.step("undo link", func() error { return unix.Unlinkat(w.top, made, 0) }) // the next call tries too
	}
	_ = w.wipe(ctx, name)
	return fmt.Errorf("write a new version of %s: %w", w.dir, err)
}

// link makes the links of the root that are missing, and says which.
func (w *writer) link(t *tree) (made []string, err error) {
	for _, name := range t.names() {
		to := dataLink + "/" + name
		found, err := readlink(w.top, name)
		if err == nil && found == to || isDir(w.top, name) { // a directory: a mount point, or made for a subPath
			continue
		}
		if !errors.Is(err, unix.ENOENT) {
			if err := w.step("remove what is no link", func() error { return unix.Unlinkat(w.top, name, 0) }); err != nil {
				return made, fmt.Errorf("replace %s: %w", name, err)
			}
		}
		if err := w.step("link", func() error { return unix.Symlinkat(to, w.top, name) }); err != nil {
			return made, fmt.Errorf("link %s: %w", name, err)
		}
		made = append(made, name)
	}
	return made, nil
}

// drop removes the links of the root that lead to nothing any more.
func (w *writer) drop(names []string, t *tree) (any bool, err error) {
	var errs []error
	for _, name := range names {
		if reserved(name) || t.has(name) {
			continue
		}
		if to, err := readlink(w.top, name); err != nil || to != dataLink+"/"+name {
			continue
		}
		if err := w.step("unlink", func() error { return unix.Unlinkat(w.top, name, 0) }); err != nil {
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

// step does one thing on disk.
func (w *writer) step(what string, do func() error) error {
	if w.fault != nil {
		if err := w.fault(what); err != nil {
			return err
		}
	}
	return do()
}

func list(dir int) ([]string, error) {
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
