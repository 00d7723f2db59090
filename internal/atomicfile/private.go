package atomicfile

import (
	"os"
	"path/filepath"
)

// MkdirPrivate makes a directory that only root may enter. It also makes the missing
// directories above it, which everybody may pass: another user may need the way through
// them, as a pod in a user namespace does to its volumes. It changes nothing that exists.
func MkdirPrivate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o700)
}
