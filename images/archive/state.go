package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"podd/internal/atomicfile"
	"podd/internal/imageref"
)

// shape changes whenever a file does, without reading it.
type shape struct {
	Size int64 `json:"size"`
	// ModTime in nanoseconds since 1970.
	ModTime int64 `json:"mtime"`
}

func shapeOf(info fs.FileInfo) shape {
	return shape{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
}

// record is one archive that was imported.
type record struct {
	Shape  shape    `json:"shape"`
	Digest string   `json:"sha256"`
	Refs   []string `json:"images"`
}

// state is a small file: which archive provided which images. Losing it only
// costs another import of each, so a corrupt one is replaced.
type state struct {
	path string

	mu   sync.Mutex
	byID map[string]record
}

// stateFile has a version, so that a later podd can read an older file.
type stateFile struct {
	Version int               `json:"version"`
	Files   map[string]record `json:"files"`
}

func loadState(path string) *state {
	s := &state{path: path, byID: map[string]record{}}
	text, err := os.ReadFile(path)
	if err != nil {
		return s
	}
	var f stateFile
	if json.Unmarshal(text, &f) == nil && f.Version == 1 && f.Files != nil {
		s.byID = f.Files
	}
	return s
}

func (s *state) get(path string) (record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.byID[path]
	return r, ok
}

// had reports whether an image, by the runtime's or a user's spelling, came from
// an archive.
func (s *state) had(ref string) bool {
	name := imageref.Full(ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byID {
		if slices.ContainsFunc(r.Refs, func(known string) bool { return imageref.Full(known) == name }) {
			return true
		}
	}
	return false
}

func (s *state) knows(path string, shape shape) bool {
	r, ok := s.get(path)
	return ok && r.Shape == shape
}

// put records an archive, drops those that are gone, and writes the file.
func (s *state) put(path string, r record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[path] = r
	for p := range s.byID {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			delete(s.byID, p)
		}
	}
	text, err := json.MarshalIndent(stateFile{Version: 1, Files: s.byID}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o711); err != nil {
		return err
	}
	return atomicfile.Write(s.path, append(text, '\n'), 0o600)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for path, r := range s.byID {
		if _, err := os.Lstat(path); err == nil {
			all = append(all, r.Refs...)
		}
	}
	return all
}
