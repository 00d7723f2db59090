package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"podd/test/e2e/whole"
)

// values are the volumes with values that a container watches, by flags.
type values struct {
	// volumes are directories, with commas between; memory those that must be no
	// disk; keys are files that show one key each, of the version that was in use as
	// the container began.
	volumes, memory, keys string
	every                 time.Duration
}

// watch reads them again and again: that what is seen is a whole version is a promise,
// and which it is, is told in out. It returns when over is closed; nil is never.
func (v values) watch(out, name, life string, over <-chan struct{}) {
	violation := func(what string, err error) {
		note(filepath.Join(out, fileViolations), fmt.Sprintf("%s of %s: %s: %v", name, life, what, err))
	}
	for _, dir := range split(v.memory) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
			violation(dir, errors.Join(err, fmt.Errorf("it is on a file system of type %#x, want a tmpfs", st.Type)))
		}
	}
	for _, file := range split(v.keys) {
		text, err := os.ReadFile(file)
		if err == nil {
			_, err = whole.Key(whole.KeyVersion, text)
		}
		if err != nil {
			violation(file, err)
		}
	}
	last := map[string]int{}
	for v.volumes != "" {
		for _, dir := range split(v.volumes) {
			seen, err := whole.Read(dir)
			if err == nil && seen.Version < last[dir] {
				err = fmt.Errorf("version %d came after %d", seen.Version, last[dir])
			}
			if err != nil {
				violation(dir, err)
			}
			if seen.Version != last[dir] {
				last[dir] = seen.Version
				tell(sawFile(out, life, name, dir), strconv.Itoa(seen.Version))
			}
		}
		select {
		case <-over:
			return
		case <-time.After(v.every):
		}
	}
}

// sawFile is where a container tells which version of a volume it sees.
func sawFile(out, life, name, dir string) string {
	return filepath.Join(out, dirSaw, life+"."+name+strings.ReplaceAll(dir, "/", "-"))
}

// tell replaces what a file says.
func tell(path, text string) {
	if err := os.WriteFile(path+".new", []byte(text), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if err := os.Rename(path+".new", path); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
