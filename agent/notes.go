package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"podd/internal/atomicfile"
	"podd/internal/pod"
)

// notes are what a restart of podd must know of pods and the runtime cannot
// hold: a small file each, <uid>.json. An empty directory keeps none. For one pod
// one call at a time.
type notes[T any] struct {
	dir  string
	uid  func(T) pod.UID
	says string // for errors: "which pod was ended"
}

func (n notes[T]) file(uid pod.UID) string { return filepath.Join(n.dir, string(uid)+".json") }

// write replaces a pod's note.
func (n notes[T]) write(note T) error {
	if n.dir == "" {
		return nil
	}
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.dir, 0o750); err != nil {
		return err
	}
	return atomicfile.Write(n.file(n.uid(note)), text, 0o640)
}

// remove takes a pod's note away; none is no error.
func (n notes[T]) remove(uid pod.UID) error {
	if n.dir == "" {
		return nil
	}
	if err := os.Remove(n.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns what an earlier podd wrote. A file that cannot be read is removed:
// what it said is lost, and the error names it.
func (n notes[T]) read() (found []T, err error) {
	if n.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(n.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(n.dir, e.Name())
		note, err := n.readFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s does not say %s: %w", path, n.says, errors.Join(err, os.Remove(path))))
			continue
		}
		found = append(found, note)
	}
	return found, errors.Join(errs...)
}

func (n notes[T]) readFile(path string) (note T, err error) {
	if !strings.HasSuffix(path, ".json") {
		return note, errors.New("a write that broke off")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return note, err
	}
	if err := json.Unmarshal(text, &note); err != nil {
		return note, err
	}
	if uid := n.uid(note); uid == "" || n.file(uid) != path {
		return note, fmt.Errorf("it speaks of pod %q", uid)
	}
	return note, nil
}
