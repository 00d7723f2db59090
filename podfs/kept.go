package podfs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/atomicfile"
	"podd/internal/pod"
)

const (
	// maxKeptFile bounds what is read; a manifest is not larger.
	maxKeptFile = 16 << 20
	keptSuffix  = ".kept"
)

// keep writes what terminating the container needs into a file of its directory, and
// returns the file's name for an annotation; "" if annotations have room for all of
// it, or there is no hook: only a hook needs the ports.
func (f *Files) keep(uid pod.UID, c *v1.Container) (string, error) {
	kept := pod.KeptOf(c)
	preStop, _, err := kept.Texts()
	if err != nil || kept.PreStop == nil || preStop != "" {
		return "", err
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return "", fmt.Errorf("keep the container's preStop hook: %w", err)
	}
	sum := sha256.Sum256(raw)
	name := hex.EncodeToString(sum[:8]) + keptSuffix
	dir := f.dirs.Container(uid, c.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make the container's directory: %w", err)
	}
	// A hook's command may contain a password: readable by root only.
	if err := atomicfile.Write(filepath.Join(dir, name), raw, 0o600); err != nil {
		return "", fmt.Errorf("keep the container's preStop hook: %w", err)
	}
	return name, nil
}

// ReadKept reads what was kept of a container in a file of its directory. The name is
// that in an annotation, which others may have written.
func (d Dirs) ReadKept(uid pod.UID, container, name string) (kept pod.Kept, err error) {
	if stem, ok := strings.CutSuffix(name, keptSuffix); !ok || stem == "" || filepath.Base(name) != name {
		return kept, errors.New("its annotation names no file of podd's")
	}
	raw, err := d.ReadEnd(filepath.Join(d.Container(uid, container), name), maxKeptFile)
	if err != nil {
		return kept, err
	}
	return kept, json.Unmarshal(raw, &kept)
}
