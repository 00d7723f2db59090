// Package lastgood keeps the newest good version of what a source reads on disk,
// so that a podd that starts while a manifest is broken still knows what ran
// before. A version that is missing is missed only then.
package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"podd/internal/atomicfile"
)

// Store has one file for each origin (the path of a manifest, a URL), named by a
// hash of it. It is for one goroutine.
type Store struct {
	dir string
	// waiting are versions to be written, by origin.
	waiting map[string][]byte
}

// New returns the Store in a directory, which is the Store's alone and made when
// needed. With "" nothing is kept, and none of its methods does anything.
func New(dir string) *Store { return &Store{dir: dir, waiting: map[string][]byte{}} }

func (s *Store) file(origin string) string {
	const bytes = 16
	sum := sha256.Sum256([]byte(origin))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:bytes]))
}

// Keep takes a good version, which Flush writes.
func (s *Store) Keep(origin string, version []byte) {
	if s.dir != "" {
		s.waiting[origin] = version
	}
}

// Flush writes what Keep took and returns what became of each, by origin: nil for
// one that is on disk now. Keep and Flush are two, so that a disk does not delay a
// pod.
func (s *Store) Flush() map[string]error {
	outcome := make(map[string]error, len(s.waiting))
	for origin, version := range s.waiting {
		outcome[origin] = s.write(origin, version)
	}
	clear(s.waiting)
	return outcome
}

func (s *Store) write(origin string, version []byte) error {
	if had, err := os.ReadFile(s.file(origin)); err == nil && bytes.Equal(had, version) {
		return nil
	}
	// Manifests may hold passwords in env: for root's eyes only.
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(s.file(origin), version, 0o600)
}

// Load returns the version of the origin that was written last, nil where there is
// none that can be read.
func (s *Store) Load(origin string) []byte {
	if s.dir == "" {
		return nil
	}
	version, err := os.ReadFile(s.file(origin))
	if err != nil {
		return nil
	}
	return version
}

// Forget removes the version of the origin, if there is one.
func (s *Store) Forget(origin string) error {
	if s.dir == "" {
		return nil
	}
	delete(s.waiting, origin)
	if err := os.Remove(s.file(origin)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Retain removes the versions of all other origins.
func (s *Store) Retain(origins ...string) error {
	if s.dir == "" {
		return nil
	}
	keep := map[string]bool{}
	for _, origin := range origins {
		keep[filepath.Base(s.file(origin))] = true
	}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if !keep[e.Name()] {
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
