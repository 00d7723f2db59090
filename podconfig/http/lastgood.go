package http

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"podd/internal/atomicfile"
	"podd/internal/pod"
	"podd/podconfig/manifest"
)

// goodFile is where the newest answer that was good as a whole is kept, named by
// a hash of the URL; "" for nowhere.
func (s *Source) goodFile() string {
	if s.cfg.StateDir == "" {
		return ""
	}
	const bytes = 16
	sum := sha256.Sum256([]byte(s.cfg.URL))
	return filepath.Join(s.cfg.StateDir, hex.EncodeToString(sum[:bytes]))
}

// before is what the source wanted when podd last ran; none where that is not
// known.
func (s *Source) before(opt manifest.Options) []*pod.Desired {
	file := s.goodFile()
	if file == "" {
		return nil
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return manifest.Decode(body, opt).Pods
}

// flush writes the good answer that is not kept yet. One that cannot be written
// is missed only by a podd that starts while the answer is broken: a warning, no
// more.
func (s *Source) flush() {
	file, body := s.goodFile(), s.unkept
	s.unkept = nil
	if file == "" || body == nil {
		return
	}
	if err := s.write(file, body); err != nil {
		s.log.Warn("keeping the last good answer does not work", "error", err)
	}
}

func (s *Source) write(file string, body []byte) error {
	if had, err := os.ReadFile(file); err == nil && bytes.Equal(had, body) {
		return nil
	}
	// Manifests may hold passwords in env: for root's eyes only.
	if err := os.MkdirAll(s.cfg.StateDir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(file, body, 0o600); err != nil {
		return err
	}
	return s.removeOthers(filepath.Base(file))
}

// removeOthers removes the answers of other URLs, which are of no use any more,
// once there is a newer one.
func (s *Source) removeOthers(kept string) error {
	entries, err := os.ReadDir(s.cfg.StateDir)
	errs := []error{err}
	for _, e := range entries {
		if e.Name() != kept {
			errs = append(errs, os.RemoveAll(filepath.Join(s.cfg.StateDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
