package node

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"podd/internal/atomicfile"
	"podd/objects"
)

// contentKey makes hashes of objects' contents comparable with those that an
// earlier podd of this boot recorded with containers; nil if there is no such key.
// It is never on a disk: with it, a Secret with few possible values could be
// guessed from what the runtime stores. If the state directory is on one, changes
// across a restart of podd go unnoticed, as for manifests with Secrets (ADR 0023).
func (n *Node) contentKey() []byte {
	key, err := keyIn(filepath.Join(n.cfg.StateDir, "objects"))
	if err != nil {
		n.log.Warn("cannot tell after a restart of podd whether ConfigMaps and Secrets have changed meanwhile", "error", err)
	}
	return key
}

func keyIn(dir string) ([]byte, error) {
	if err := atomicfile.MkdirPrivate(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "key")
	if !atomicfile.InMemory(dir) {
		return nil, nil
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) == objects.KeySize {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key = make([]byte, objects.KeySize)
	_, _ = rand.Read(key) // it never fails
	if err := atomicfile.Write(path, key, 0o600); err != nil {
		return nil, err
	}
	return key, nil
}
