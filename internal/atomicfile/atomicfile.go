package atomicfile

import (
	"errors"
	"os"
)

// Write replaces a file atomically: a reader, or a podd that starts after a crash of
// this one, finds the old content or the new. It creates the file, not its directory;
// mode is that of the new file, less the umask. The content is first written to path
// with ".new" appended, which a crash may leave behind and the next Write replaces:
// concurrent writes to one path are not supported.
//
// Nothing is synced to disk. Readers must be able to do without the file after a
// power failure.
func Write(path string, content []byte, mode os.FileMode) error {
	half := path + ".new"
	if err := os.WriteFile(half, content, mode); err != nil {
		return errors.Join(err, removeIfThere(half))
	}
	if err := os.Rename(half, path); err != nil {
		return errors.Join(err, removeIfThere(half))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
