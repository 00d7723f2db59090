package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a file atomically: a reader, or a podd that starts after a crash of this
// one, finds either the old content or the new. It creates the file, not its directory;
// mode is the new file's mode, less the umask. It first writes the content to path with
// ".new" appended. A crash may leave that file behind, and the next Write replaces it:
// concurrent writes to one path are not supported.
//
// Nothing is synced to disk. Readers must be able to do without the file after a
// power failure.
func Write(path string, content []byte, mode os.FileMode) error {
	return write(path, content, mode, func(*os.File) error { return nil })
}

// WriteDurably is Write for content that must survive a power failure. After it has
// returned, a power failure leaves the new content; before, the old content or the new. It
// blocks until the disk has the content and its name. After an error the file may have
// either content, and the caller should write again.
func WriteDurably(path string, content []byte, mode os.FileMode) error {
	if err := write(path, content, mode, (*os.File).Sync); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// SetAside renames an unusable file to its path with ".broken" appended, and replaces an
// earlier such file. So the next Write does not destroy what an operator, or an earlier or
// later version of podd, may still read in it. It returns a clause that tells the operator
// where the file is. After an error the file is still at its path, where the next Write
// replaces it, and the clause says that.
func SetAside(path string) (where string, err error) {
	aside := path + ".broken"
	if err := os.Rename(path, aside); err != nil {
		return "copy " + path + " before podd overwrites it", err
	}
	return "the file was kept as " + aside, nil
}

func write(path string, content []byte, mode os.FileMode, settle func(*os.File) error) error {
	half := path + ".new"
	f, err := os.OpenFile(half, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err == nil {
		if _, err = f.Write(content); err == nil {
			err = settle(f)
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = os.Rename(half, path)
	}
	if err != nil {
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
