package atomicfile

import (
	"errors"
	"os"
)

// Write replaces the file in one step: a reader, or a podd that starts after
// this one was killed, finds the old content or the new. It makes the file, not
// its directory; mode is that of the new file, less the umask. Until the end
// the content is in path with ".new" behind it, which a killed podd may leave
// and the next Write takes over: two at a time for one path are a mistake.
//
// Nothing is forced to the disk. Whoever reads the file must be able to do
// without it after a power cut.
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
