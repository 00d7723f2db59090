package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"

	"podd/internal/atomicfile"
	"podd/internal/pod"
	"podd/podconfig/manifest"
)

// lastGood keeps the newest good version of each manifest in a directory, one
// file each, named by a hash of the manifest's path, so that a podd that starts
// while a manifest is broken still knows what ran before.
type lastGood struct {
	dir string // "" for none
	log *slog.Logger
	// waiting to be written, by path.
	waiting map[string][]byte
	swept   bool
}

func (g *lastGood) file(path string) string {
	const bytes = 16
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(g.dir, hex.EncodeToString(sum[:bytes]))
}

// keep notes a good version; flush writes it.
func (g *lastGood) keep(path string, data []byte) {
	if g.dir == "" {
		return
	}
	if g.waiting == nil {
		g.waiting = map[string][]byte{}
	}
	g.waiting[path] = data
}

// flush writes what keep noted. A version that cannot be written is missed only
// by a podd that starts while its manifest is broken: a warning, no more.
func (g *lastGood) flush() {
	for path, data := range g.waiting {
		if err := g.write(path, data); err != nil {
			g.log.Warn("keeping the last good version of a manifest does not work", "manifest", path, "error", err)
		}
	}
	clear(g.waiting)
}

func (g *lastGood) write(path string, data []byte) error {
	name := g.file(path)
	if had, err := os.ReadFile(name); err == nil && bytes.Equal(had, data) {
		return nil
	}
	// Manifests may hold passwords in env: for root's eyes only.
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(name, data, 0o600)
}

// load returns the pods of the last good version, if there is one.
func (g *lastGood) load(path string, opt manifest.Options) []*pod.Desired {
	if g.dir == "" {
		return nil
	}
	data, err := os.ReadFile(g.file(path))
	if err != nil {
		return nil
	}
	return manifest.Decode(data, opt).Pods
}

func (g *lastGood) forget(path string) {
	if g.dir == "" {
		return
	}
	delete(g.waiting, path)
	if err := os.Remove(g.file(path)); err != nil && !os.IsNotExist(err) {
		g.log.Warn("removing the last good version of a manifest does not work", "manifest", path, "error", err)
	}
}

// forgetAllBut sweeps, once, what manifests left behind that went while podd
// was away.
func (g *lastGood) forgetAllBut(paths func() []string) {
	if g.dir == "" || g.swept {
		return
	}
	g.swept = true
	keep := map[string]bool{}
	for _, p := range paths() {
		keep[filepath.Base(g.file(p))] = true
	}
	files, err := os.ReadDir(g.dir)
	if err != nil {
		return
	}
	for _, f := range files {
		if !keep[f.Name()] {
			_ = os.Remove(filepath.Join(g.dir, f.Name()))
		}
	}
}
