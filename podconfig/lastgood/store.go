// Package lastgood stores the newest good version of each manifest of a source, so that a podd
// that starts while a manifest is broken still knows what ran before. A missing version matters
// only then.
//
// A version with a Secret never reaches a disk. It is kept in memory, and a reboot forgets it
// (ADR 0023).
package lastgood

import (
	"errors"

	"podd/internal/atomicfile"
	"podd/internal/checkpoint"
)

// Store has one file for each origin (the path of a manifest, a URL), named by a hash of the
// origin. Only one goroutine may use it.
type Store struct {
	// dir is on disk. volatile is in memory, if its file system is: see atomicfile.InMemory.
	dir, volatile string
	inMemory      func(dir string) bool
	// refusalLogged is set once podd has logged that it does not keep versions with Secrets.
	refusalLogged bool
	// pending holds the versions to write, by origin.
	pending map[string]version
}

type version struct {
	text   []byte
	secret bool
}

// New returns the Store in a directory that only the Store uses. The directory is created when
// needed. Versions with a Secret go to volatile if that is on tmpfs or ramfs, which the Store
// checks; otherwise they are not kept. If dir is "", nothing is kept and the methods do
// nothing.
func New(dir, volatile string) *Store {
	return &Store{dir: dir, volatile: volatile, inMemory: atomicfile.InMemory, pending: map[string]version{}}
}

// versionsIn returns the versions in a directory. Only root may read them: manifests may contain
// passwords in env.
func versionsIn(dir string) checkpoint.Dir[[]byte] {
	return checkpoint.Dir[[]byte]{Path: dir, Naming: naming, Format: checkpoint.Format{Codec: checkpoint.Raw, SkipUnchanged: true}}
}

var naming = checkpoint.Hashed("", 16)

// Put takes a good version, which Flush writes. secret says whether it has a Secret.
func (s *Store) Put(origin string, text []byte, secret bool) {
	if s.dir != "" {
		s.pending[origin] = version{text, secret}
	}
}

// HasPending reports whether Flush has something to write.
func (s *Store) HasPending() bool { return len(s.pending) > 0 }

// Flush writes the versions passed to Put and returns the errors by origin, with nil for a
// version that is now stored. Flush is separate from Put so that a disk does not delay a pod.
func (s *Store) Flush() map[string]error {
	outcome := make(map[string]error, len(s.pending))
	for origin, version := range s.pending {
		outcome[origin] = s.write(origin, version)
	}
	clear(s.pending)
	return outcome
}

// errOnDisk is logged only once.
var errOnDisk = errors.New("a version with a Secret is not kept, as the state directory (--state-dir) is on a disk: put it on a tmpfs, such as /run")

func (s *Store) write(origin string, v version) error {
	if !v.secret {
		return errors.Join(versionsIn(s.dir).File(origin).Write(v.text), versionsIn(s.volatile).File(origin).Remove())
	}
	if err := versionsIn(s.dir).File(origin).Remove(); err != nil { // one from before it had a Secret
		return err
	}
	if s.volatile == "" {
		return nil
	}
	if err := atomicfile.MkdirPrivate(s.volatile); err != nil {
		return err
	}
	if s.inMemory(s.volatile) {
		return versionsIn(s.volatile).File(origin).Write(v.text)
	}
	if s.refusalLogged {
		return nil
	}
	s.refusalLogged = true
	return errOnDisk
}

// Load returns the last written version of the origin, or nil if there is no readable one.
func (s *Store) Load(origin string) []byte {
	if s.dir == "" {
		return nil
	}
	for _, dir := range []string{s.volatile, s.dir} {
		if text, err := versionsIn(dir).File(origin).Read(); err == nil {
			return text
		}
	}
	return nil
}

// Forget removes the version of the origin, if there is one.
func (s *Store) Forget(origin string) error {
	if s.dir == "" {
		return nil
	}
	delete(s.pending, origin)
	return errors.Join(versionsIn(s.dir).Remove(origin), versionsIn(s.volatile).Remove(origin))
}

// Retain removes the versions of all other origins.
func (s *Store) Retain(origins ...string) error {
	if s.dir == "" {
		return nil
	}
	keep := make(map[string]bool, len(origins))
	for _, origin := range origins {
		keep[naming.Name(origin)] = true
	}
	only := func(name string) bool { return keep[name] }
	return errors.Join(versionsIn(s.dir).Retain(only), versionsIn(s.volatile).Retain(only))
}
