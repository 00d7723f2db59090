package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// canaryPrefix begins the names of what this test puts into emptyDirs from outside.
const canaryPrefix = "canary-"

// bindable is the tree that is mounted inside emptyDirs, behind podd's back.
func (w *world) bindable() string { return filepath.Join(w.dir, "bound") }

// layCanaries makes the trees that nobody but their owner may touch: one in a
// hostPath that every pod mounts, and one that is mounted into emptyDirs.
func (w *world) layCanaries() error {
	w.kept = map[string]string{}
	for _, top := range []string{filepath.Join(w.out(), "canary"), w.bindable()} {
		if err := layTree(top); err != nil {
			return fmt.Errorf("lay out a canary tree: %w", err)
		}
		w.kept[top] = treeOf(top)
	}
	return nil
}

func layTree(top string) error {
	var errs []error
	for _, dir := range []string{".", "deep/deeper", "..data", "volumes/kubernetes.io~secret/x"} {
		errs = append(errs, os.MkdirAll(filepath.Join(top, dir), 0o750))
	}
	for _, file := range []string{"file", "deep/deeper/file", "..data/key", "volumes/kubernetes.io~secret/x/key"} {
		errs = append(errs, os.WriteFile(filepath.Join(top, file), []byte("nobody but its owner touches "+file+"\n"), 0o600))
	}
	return errors.Join(append(errs, os.Symlink("deep", filepath.Join(top, "link")), unix.Mkfifo(filepath.Join(top, "fifo"), 0o600))...)
}

// treeOf tells all of a tree: names, modes, owners, contents.
func treeOf(top string) string {
	var b strings.Builder
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %o %d:%d", strings.TrimPrefix(path, top), st.Mode, st.Uid, st.Gid)
		switch {
		case d.Type().IsRegular():
			text, err := os.ReadFile(path)
			fmt.Fprintf(&b, " %q %v", text, err)
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			fmt.Fprintf(&b, " → %s %v", to, err)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		fmt.Fprintf(&b, "%v\n", err)
	}
	return b.String()
}

// canariesLive says which tree is not as it was.
func (w *world) canariesLive() error {
	for top, was := range w.kept {
		if now := treeOf(top); now != was {
			return fmt.Errorf("what is not podd's was touched: %s had\n%s\nand has\n%s", top, was, now)
		}
	}
	return nil
}

// bind mounts a canary tree inside an emptyDir of the node, as somebody does who
// keeps data there behind podd's back. Sometimes it is busy for a while, so that it
// cannot be unmounted.
func (w *world) bind(rng *rand.Rand, meanwhile func() error) (string, error) {
	all, _ := filepath.Glob(filepath.Join(w.node.Root(), "pods", "*", "volumes", "kubernetes.io~empty-dir", "*"))
	long := time.Duration(rng.IntN(3000)) * time.Millisecond
	dir := pick(rng, all)
	if dir == "" {
		return "(there is none)", meanwhile()
	}
	w.bound++
	at := filepath.Join(dir, fmt.Sprintf("%s%d", canaryPrefix, w.bound))
	err := os.Mkdir(at, 0o755)
	if err == nil {
		err = unix.Mount(w.bindable(), at, "", unix.MS_BIND, "")
	}
	if err != nil { // the pod has gone meanwhile, or the disk is full
		w.bound--
		return fmt.Sprintf("(refused: %v)", err), meanwhile()
	}
	if rng.IntN(2) == 0 {
		return at, meanwhile()
	}
	busy, err := os.Open(filepath.Join(at, "file"))
	if err != nil {
		return at, errors.Join(ignoreGone(err), meanwhile())
	}
	err = meanwhile()
	time.Sleep(long)
	return fmt.Sprintf("%s, busy for %v", at, long), errors.Join(err, busy.Close())
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func contents(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
