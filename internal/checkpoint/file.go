package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"podd/internal/atomicfile"
)

// defaultMaxBytes is the limit of a Format that sets none.
const defaultMaxBytes = 256 << 20

// Format says how files are encoded and written. The zero value is JSON that only root can
// read and that a power failure may lose.
type Format struct {
	Codec Codec
	// Mode is the mode of a new file; 0 means 0600. DirMode is that of its directory, if
	// that is missing; 0 means 0700 within parents of 0711.
	Mode, DirMode fs.FileMode
	// Durable files survive a power failure: Write and Remove block until the disk has the
	// change.
	Durable bool
	// SkipUnchanged reads a file before it is written, and does not touch it if it has the
	// same content.
	SkipUnchanged bool
	// OwnerOnly rejects a file that another user could have written: one that is no regular
	// file, that belongs to somebody else, or that its group or others may write.
	OwnerOnly bool
	// MaxBytes is the limit for a file that is read or written; 0 means 256 MiB.
	MaxBytes int64
}

// File keeps one value. Without a Path it keeps nothing: Write and Remove succeed, and Read
// finds nothing. Writes to one File must not be concurrent.
type File[T any] struct {
	Path string
	Format
	// Check rejects or completes a decoded value; nil accepts every value.
	Check func(*T) error
}

// Read returns the value. The error is fs.ErrNotExist if there is no file.
func (f File[T]) Read() (value T, err error) {
	if f.Path == "" {
		return value, fs.ErrNotExist
	}
	content, err := f.read(f.Path)
	if err != nil {
		return value, err
	}
	if err := f.codec().Decode(content, &value); err != nil || f.Check == nil {
		return value, err
	}
	return value, f.Check(&value)
}

// Write replaces the value, and creates the directory if it is missing.
func (f File[T]) Write(value T) error {
	if f.Path == "" {
		return nil
	}
	content, err := f.codec().Encode(value)
	if err != nil {
		return err
	}
	if int64(len(content)) > f.maxBytes() {
		return f.errTooLong()
	}
	return f.write(f.Path, content)
}

// SetAside renames a damaged file, so that the next Write does not destroy what an operator
// may still read in it: see atomicfile.SetAside.
func (f File[T]) SetAside() (where string, err error) { return atomicfile.SetAside(f.Path) }

// Remove removes the file, if there is one.
func (f File[T]) Remove() error {
	if f.Path == "" {
		return nil
	}
	return f.remove(f.Path)
}

func (o Format) codec() Codec {
	if o.Codec.Encode == nil {
		return JSON
	}
	return o.Codec
}

func (o Format) maxBytes() int64 {
	if o.MaxBytes == 0 {
		return defaultMaxBytes
	}
	return o.MaxBytes
}

func (o Format) errTooLong() error {
	if o.maxBytes() < 1<<20 {
		return fmt.Errorf("it is longer than the limit of %d KiB", o.maxBytes()>>10)
	}
	return fmt.Errorf("it is longer than the limit of %d MiB", o.maxBytes()>>20)
}

func (o Format) read(path string) ([]byte, error) {
	flags := os.O_RDONLY
	if o.OwnerOnly {
		flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK // a link, or a FIFO without a writer
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if o.OwnerOnly {
		if err := checkOwner(f); err != nil {
			return nil, err
		}
	}
	content, err := io.ReadAll(io.LimitReader(f, o.maxBytes()+1))
	if int64(len(content)) > o.maxBytes() {
		return nil, o.errTooLong()
	}
	return content, err
}

func checkOwner(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is not a regular file")
	case int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0:
		return errors.New("others than podd's user may write it")
	}
	return nil
}

func (o Format) write(path string, content []byte) error {
	if o.SkipUnchanged {
		if had, err := o.read(path); err == nil && bytes.Equal(had, content) {
			return nil
		}
	}
	if err := o.mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	mode := o.Mode
	if mode == 0 {
		mode = 0o600
	}
	if o.Durable {
		return atomicfile.WriteDurably(path, content, mode)
	}
	return atomicfile.Write(path, content, mode)
}

func (o Format) mkdir(dir string) error {
	if o.DirMode == 0 {
		return atomicfile.MkdirPrivate(dir)
	}
	return os.MkdirAll(dir, o.DirMode)
}

func (o Format) remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, o.syncDir(filepath.Dir(path)))
}

// syncDir makes removals durable: a power failure must not bring a removed file back.
func (o Format) syncDir(dir string) error {
	if !o.Durable {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
