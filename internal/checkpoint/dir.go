package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tempSuffix is what package atomicfile appends to the name of a file while it writes it.
const tempSuffix = ".new"

// Dir keeps one value for each key, in a file each. The directory belongs to the Dir alone.
// Without a Path it keeps nothing. Calls for one key must not be concurrent.
type Dir[T any] struct {
	Path   string
	Naming Naming // the zero value is Plain
	// MaxFiles bounds the files that ReadAll reads; 0 means no limit.
	MaxFiles int
	Format
	// Check rejects or completes a value that was decoded from the file of a key; nil
	// accepts every value.
	Check func(key string, value *T) error
}

// DamagedFile is a file of a Dir that cannot be read, and why.
type DamagedFile struct {
	Path string
	Err  error
}

// File returns the file of a key.
func (d Dir[T]) File(key string) File[T] {
	if d.Path == "" {
		return File[T]{}
	}
	return d.named(d.naming().Name(key), key)
}

func (d Dir[T]) named(name, key string) File[T] {
	f := File[T]{Path: filepath.Join(d.Path, name), Format: d.Format}
	if d.Check != nil {
		f.Check = func(value *T) error { return d.Check(key, value) }
	}
	return f
}

func (d Dir[T]) naming() Naming {
	if d.Naming.Name == nil {
		return Plain
	}
	return d.Naming
}

// Remove removes a key's file and the leftovers of an interrupted write.
func (d Dir[T]) Remove(key string) error {
	if d.Path == "" {
		return nil
	}
	f := d.File(key)
	return errors.Join(f.Remove(), f.remove(f.Path+tempSuffix))
}

// ReadAll calls visit with each value and its key, and returns the files that cannot be read.
// It skips files without a key, interrupted writes (the value before them counts) and
// everything that is not a regular file, unless OwnerOnly reports that.
func (d Dir[T]) ReadAll(visit func(key string, value T)) (damaged []DamagedFile) {
	entries, err := d.entries()
	if err != nil {
		damaged = append(damaged, DamagedFile{d.Path, err})
	}
	if d.MaxFiles > 0 && len(entries) > d.MaxFiles {
		damaged = append(damaged, DamagedFile{d.Path, fmt.Errorf("there are %d files, and the first %d are read", len(entries), d.MaxFiles)})
		entries = entries[:d.MaxFiles]
	}
	for _, e := range entries {
		key, ok := d.naming().Key(e.Name())
		if !ok || !d.OwnerOnly && !e.Type().IsRegular() {
			continue
		}
		f := d.named(e.Name(), key)
		value, err := f.Read()
		if err != nil {
			damaged = append(damaged, DamagedFile{f.Path, err})
			continue
		}
		visit(key, value)
	}
	return damaged
}

// Keys lists the keys without reading the files. It includes keys with only an interrupted
// write.
func (d Dir[T]) Keys() ([]string, error) {
	entries, err := d.entries()
	var keys []string
	for _, e := range entries {
		key, ok := d.naming().Key(strings.TrimSuffix(e.Name(), tempSuffix))
		if ok && (len(keys) == 0 || keys[len(keys)-1] != key) {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// Retain removes everything except the files of the keys that keep accepts.
func (d Dir[T]) Retain(keep func(key string) bool) error {
	entries, err := d.entries()
	errs, removed := []error{err}, false
	for _, e := range entries {
		if key, ok := d.naming().Key(e.Name()); !ok || !keep(key) {
			errs, removed = append(errs, os.RemoveAll(filepath.Join(d.Path, e.Name()))), true
		}
	}
	if removed {
		errs = append(errs, d.syncDir(d.Path))
	}
	return errors.Join(errs...)
}

// entries lists the directory in the order of the names; nothing if it is missing.
func (d Dir[T]) entries() ([]fs.DirEntry, error) {
	if d.Path == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}
