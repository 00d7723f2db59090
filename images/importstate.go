package images

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
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podd/internal/atomicfile"
)

// importShape is what changes whenever a file does, without reading it.
type importShape struct {
	Size int64 `json:"size"`
	// ModTime in nanoseconds since 1970.
	ModTime int64 `json:"mtime"`
}

func shapeOf(info fs.FileInfo) importShape {
	return importShape{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
}

// importRecord is one archive that was imported.
type importRecord struct {
	Shape  importShape `json:"shape"`
	Digest string      `json:"sha256"`
	Refs   []string    `json:"images"`
}

// importState is a small file: which archive gave which images. Losing it costs
// an import of each, nothing else, so a bad one is simply begun anew.
type importState struct {
	path string

	mu   sync.Mutex
	byID map[string]importRecord
}

// importStateFile has a version, so that a later podd can read an older one's.
type importStateFile struct {
	Version int                     `json:"version"`
	Files   map[string]importRecord `json:"files"`
}

func loadImportState(path string) *importState {
	s := &importState{path: path, byID: map[string]importRecord{}}
	text, err := os.ReadFile(path)
	if err != nil {
		return s
	}
	var f importStateFile
	if json.Unmarshal(text, &f) == nil && f.Version == 1 && f.Files != nil {
		s.byID = f.Files
	}
	return s
}

func (s *importState) get(path string) (importRecord, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.byID[path]
	return r, ok
}

// had says whether an image, in the runtime's or in a person's spelling, came
// from an archive.
func (s *importState) had(ref string) bool {
	name := fullName(ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byID {
		if slices.ContainsFunc(r.Refs, func(known string) bool { return fullName(known) == name }) {
			return true
		}
	}
	return false
}

func (s *importState) knows(path string, shape importShape) bool {
	r, ok := s.get(path)
	return ok && r.Shape == shape
}

// put notes an archive, forgets those that are gone, and writes the file.
func (s *importState) put(path string, r importRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[path] = r
	for p := range s.byID {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			delete(s.byID, p)
		}
	}
	text, err := json.MarshalIndent(importStateFile{Version: 1, Files: s.byID}, "", "  ")
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

type importMetrics struct {
	total   *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newImportMetrics(reg prometheus.Registerer) *importMetrics {
	m := &importMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_image_imports_total",
			Help: "Imports of archives from the image directory, by result (imported, bad_archive, error).",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "podd_image_import_duration_seconds",
			Help:    "How long the import of an archive took, whatever its result.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 12),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.total, m.seconds)
	}
	return m
}

func (m *importMetrics) observe(err error, took time.Duration) {
	result := "imported"
	if _, bad := errors.AsType[*BadArchiveError](err); bad {
		result = "bad_archive"
	} else if err != nil {
		result = "error"
	}
	m.total.WithLabelValues(result).Inc()
	m.seconds.Observe(took.Seconds())
}

// refs are the names of all images that came from archives that are still there.
func (s *importState) refs() []string {
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
