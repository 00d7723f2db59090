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

// checkpointFiles are small files, <uid>.json, with what podd must remember across a
// restart and the runtime cannot store. Without a directory nothing is stored. Calls
// for the same pod must not be concurrent.
type checkpointFiles[T any] struct {
	dir  string
	uid  func(T) pod.UID
	says string // for errors: "which pod was terminated"
	// check validates, and may complete, what was read; nil for no check.
	check func(T) (T, error)
}

func (f checkpointFiles[T]) file(uid pod.UID) string {
	return filepath.Join(f.dir, string(uid)+".json")
}

// write replaces a pod's checkpoint.
func (f checkpointFiles[T]) write(v T) error {
	if f.dir == "" {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o750); err != nil {
		return err
	}
	return atomicfile.Write(f.file(f.uid(v)), text, 0o640)
}

// remove deletes a pod's checkpoint, if there is one.
func (f checkpointFiles[T]) remove(uid pod.UID) error {
	if f.dir == "" {
		return nil
	}
	if err := os.Remove(f.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// read returns the checkpoints of an earlier podd. A file that cannot be read is
// removed, since nothing can be restored from it; the error names it.
func (f checkpointFiles[T]) read() (found []T, err error) {
	if f.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		path := filepath.Join(f.dir, e.Name())
		v, err := f.readFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s (%s): %w", path, f.says, errors.Join(err, os.Remove(path))))
			continue
		}
		found = append(found, v)
	}
	return found, errors.Join(errs...)
}

func (f checkpointFiles[T]) readFile(path string) (v T, err error) {
	if !strings.HasSuffix(path, ".json") {
		return v, errors.New("an interrupted write")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, err
	}
	if uid := f.uid(v); uid == "" || f.file(uid) != path {
		return v, fmt.Errorf("it names pod %q", uid)
	}
	if f.check != nil {
		return f.check(v)
	}
	return v, nil
}
