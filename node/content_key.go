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

// contentKey returns a key for hashes of objects' contents, or nil if there is none. It makes
// them comparable with the hashes that an earlier podd of this boot recorded with containers.
// The key is never on a disk: it would let somebody guess a Secret with few possible values
// from the data that the runtime stores. If the state directory is on a disk, changes across a
// restart of podd go unnoticed, as for manifests with Secrets (ADR 0023).
func (n *Node) contentKey() []byte {
	key, err := loadOrCreateKey(filepath.Join(n.cfg.StateDir, "objects"))
	if err != nil {
		n.log.Warn("cannot tell after a restart of podd whether ConfigMaps and Secrets have changed meanwhile", "error", err)
	}
	return key
}

func loadOrCreateKey(dir string) ([]byte, error) {
	if err := atomicfile.MkdirPrivate(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "key")
	if !atomicfile.InMemory(dir) {
		return nil, nil
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) == objects.HashKeySize {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key = make([]byte, objects.HashKeySize)
	_, _ = rand.Read(key) // Read never fails
	if err := atomicfile.Write(path, key, 0o600); err != nil {
		return nil, err
	}
	return key, nil
}
