package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"podd/internal/checkpoint"
	"podd/internal/imageref"
)

// fileStamp changes whenever a file does, without reading it.
type fileStamp struct {
	Size int64 `json:"size"`
	// ModTime in nanoseconds since 1970.
	ModTime int64 `json:"mtime"`
}

func stampOf(info fs.FileInfo) fileStamp {
	return fileStamp{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
}

// record is one archive that was imported.
type record struct {
	Stamp  fileStamp `json:"shape"`
	Digest string    `json:"sha256"`
	Refs   []string  `json:"images"`
}

// state is a small file that says which archive provided which images. Losing it costs only
// another import of each, so a corrupt one is replaced.
type state struct {
	file checkpoint.File[stateFile]
	// write is file.Write, or a test's function.
	write func(stateFile) error

	mu     sync.Mutex
	byPath map[string]record // never changed, only replaced
}

// stateFile has a version, so that a later podd can read an older file.
type stateFile struct {
	Version int               `json:"version"`
	Files   map[string]record `json:"files"`
}

func loadState(path string) *state {
	s := &state{file: checkpoint.File[stateFile]{Path: path, Format: checkpoint.Format{Codec: checkpoint.IndentedJSON, DirMode: 0o711}}, byPath: map[string]record{}}
	s.write = s.file.Write
	if f, err := s.file.Read(); err == nil && f.Version == 1 && f.Files != nil {
		s.byPath = f.Files
	}
	return s
}

func (s *state) get(path string) (record, bool) {
	r, ok := s.all()[path]
	return r, ok
}

// hasImage reports whether an image, by the runtime's or a user's spelling, came from
// an archive.
func (s *state) hasImage(ref string) bool {
	name := imageref.Full(ref)
	for _, r := range s.all() {
		if slices.ContainsFunc(r.Refs, func(known string) bool { return imageref.Full(known) == name }) {
			return true
		}
	}
	return false
}

func (s *state) isCurrent(path string, stamp fileStamp) bool {
	r, ok := s.get(path)
	return ok && r.Stamp == stamp
}

// put records an archive, drops archives that are gone, and writes the file. Only Dir.Run
// may call it, so that the files are written in the order of the calls; nobody else waits
// for that.
func (s *state) put(path string, r record) error {
	there := map[string]record{path: r}
	for p, known := range s.all() {
		if p == path {
			continue
		}
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			there[p] = known
		}
	}
	s.mu.Lock()
	s.byPath = there
	s.mu.Unlock()
	return s.write(stateFile{Version: 1, Files: there})
}

// all returns the known archives. The map is read-only: put makes another one.
func (s *state) all() map[string]record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byPath
}

func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// refs returns the names of all images from archives that still exist.
func (s *state) refs() []string {
	var all []string
	for path, r := range s.all() {
		if _, err := os.Lstat(path); err == nil {
			all = append(all, r.Refs...)
		}
	}
	return all
}
