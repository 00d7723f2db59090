// Package whole is how tests tell a whole version of a volume from half of one. A
// version is a set of keys that all say which they are of, of different lengths, one
// of them in odd versions only; a reader that finds keys of two versions, a key cut
// short or one too few has seen half.
//
// Read reads as programs do that want several keys of one version: through the
// directory that ..data leads to, looked up once.
package whole

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// dataLink is what leads to the version in use, in the kubelet's layout.
const dataLink = "..data"

// The keys of a version, besides the one that only odd ones have.
const (
	KeyVersion = "version"
	keyLong    = "long"
	keyShort   = "short"
	keyOdd     = "odd"
	keyMark    = "mark"
	ending     = "end\n"
)

// ErrHalf is that a reader saw what is no version.
var ErrHalf = errors.New("half a version")

// Data are the keys of a version, which is above 0; mark, if not empty, is one more,
// that whoever reads it is to pass on.
func Data(version int, mark string) map[string]string {
	line := strconv.Itoa(version) + "\n"
	data := map[string]string{
		KeyVersion: line + ending,
		keyLong:    strings.Repeat(line, 500+version%100) + ending,
		keyShort:   strings.Repeat(line, 1+version%5) + ending,
	}
	if version%2 == 1 {
		data[keyOdd] = line + ending
	}
	if mark != "" {
		data[keyMark] = mark
	}
	return data
}

// Seen is what a reader saw.
type Seen struct {
	// Version is 0 where there are no keys at all, as of an optional object that is
	// not there.
	Version int
	Mark    string
}

// Read reads the version in use in dir. The error is ErrHalf where readers see what
// no version is. A version that goes while it is read is read again: it was the one
// in use when it was looked up.
func Read(dir string) (Seen, error) {
	for {
		name, err := os.Readlink(filepath.Join(dir, dataLink))
		if err != nil {
			return Seen{}, fmt.Errorf("%w: %w", ErrHalf, err)
		}
		seen, err := readVersion(filepath.Join(dir, name))
		if err == nil && seen.Version > 0 {
			// As programs do that open a key by its own name: any version will do.
			err = checkKey(filepath.Join(dir, keyLong))
		}
		gone := errors.Is(err, fs.ErrNotExist) || err == nil && seen.Version == 0
		now, linkErr := os.Readlink(filepath.Join(dir, dataLink))
		if gone && linkErr == nil && now != name {
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w, and that version is in use", ErrHalf, err)
		}
		return seen, err
	}
}

// readVersion reads the directory of a version. What it misses may be gone since.
func readVersion(dir string) (seen Seen, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return seen, err
	}
	text, err := os.ReadFile(filepath.Join(dir, KeyVersion))
	if err != nil {
		return seen, err
	}
	if seen.Version, err = Key(KeyVersion, text); err != nil {
		return seen, err
	}
	if mark, err := os.ReadFile(filepath.Join(dir, keyMark)); err == nil {
		seen.Mark = string(mark)
	}
	for key, want := range Data(seen.Version, "") {
		text, err := os.ReadFile(filepath.Join(dir, key))
		if err != nil {
			return seen, err
		}
		if string(text) != want {
			return seen, fmt.Errorf("%w: %s of %d has %d bytes, %.20q…", ErrHalf, key, seen.Version, len(text), text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, keyOdd)); err == nil && seen.Version%2 == 0 {
		return seen, fmt.Errorf("%w: %d has a key of another version", ErrHalf, seen.Version)
	}
	return seen, nil
}

func checkKey(path string) error {
	text, err := os.ReadFile(path)
	if err == nil {
		_, err = Key(filepath.Base(path), text)
	}
	return err
}

// Key is the version that a key alone is of; the error is ErrHalf where it is not
// whole.
func Key(key string, text []byte) (int, error) {
	first, _, _ := strings.Cut(string(text), "\n")
	version, err := strconv.Atoi(first)
	if err != nil || Data(version, "")[key] != string(text) {
		return 0, fmt.Errorf("%w: %s has %d bytes, %.20q…", ErrHalf, key, len(text), text)
	}
	return version, nil
}
