package agent

import (
	"errors"
	"fmt"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

// checkpointFiles are small files, <uid>.json, that hold what podd must remember across a
// restart and the runtime cannot store. Without a directory nothing is stored. Calls for
// the same pod must not be concurrent.
type checkpointFiles[T any] struct {
	dir  checkpoint.Dir[T]
	uid  func(*T) pod.UID
	what string // for errors: "which pod was terminated"
}

// newCheckpointFiles returns the files in a directory. complete validates, and may change,
// what was read; nil accepts each.
func newCheckpointFiles[T any](dir, what string, uid func(*T) pod.UID, complete func(*T) error) checkpointFiles[T] {
	return checkpointFiles[T]{uid: uid, what: what, dir: checkpoint.Dir[T]{
		Path: dir, Format: checkpoint.Format{Mode: 0o640, DirMode: 0o750},
		Check: func(key string, v *T) error {
			if got := uid(v); got == "" || string(got) != key {
				return fmt.Errorf("it names pod %q", got)
			}
			if complete == nil {
				return nil
			}
			return complete(v)
		},
	}}
}

// write replaces a pod's checkpoint.
func (f checkpointFiles[T]) write(v T) error { return f.dir.File(string(f.uid(&v))).Write(v) }

// remove deletes a pod's checkpoint, if there is one.
func (f checkpointFiles[T]) remove(uid pod.UID) error { return f.dir.Remove(string(uid)) }

// read returns the checkpoints of an earlier podd. A file that cannot be read is
// removed, since nothing can be restored from it; the error names it.
func (f checkpointFiles[T]) read() (found []T, err error) {
	var errs []error
	good := map[string]bool{}
	for _, d := range f.dir.ReadAll(func(key string, v T) { found, good[key] = append(found, v), true }) {
		err := fmt.Errorf("read %s (%s): %w", d.Path, f.what, d.Err)
		if d.Path == f.dir.Path { // it was not listed: nothing is known to be bad
			return found, err
		}
		errs = append(errs, err)
	}
	return found, errors.Join(append(errs, f.dir.Retain(func(key string) bool { return good[key] }))...)
}
