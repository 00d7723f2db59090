package atomicfile

import (
	"os"
	"path/filepath"
)

// MkdirPrivate makes a directory that only root may enter, and those above it that are
// missing, which everybody may pass: another user's way may lead through them, as that
// of a pod in a user namespace does to its volumes. Nothing is changed of what exists.
func MkdirPrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o700)
}
