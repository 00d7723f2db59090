package node

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"podd/internal/atomicfile"
	"podd/objects"
)

func TestTheKeyOfContentsOutlivesPoddAndIsOnNoDisk(t *testing.T) {
	const shm = "/dev/shm"
	if !atomicfile.InMemory(shm) {
		t.Skip("needs a tmpfs at " + shm)
	}
	base, err := os.MkdirTemp(shm, "podd-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(base) }()
	dir := filepath.Join(base, "objects")
	first, err := loadOrCreateKey(dir)
	if err != nil || len(first) != objects.HashKeySize {
		t.Fatalf("got %d bytes (%v)", len(first), err)
	}
	path := filepath.Join(dir, "key")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v (%v), want a file that root alone reads", info, err)
	}
	if again, err := loadOrCreateKey(dir); err != nil || !bytes.Equal(again, first) {
		t.Errorf("the next podd has another key (%v)", err)
	}
	if err := os.WriteFile(path, first[:7], 0o600); err != nil {
		t.Fatal(err)
	}
	if mended, err := loadOrCreateKey(dir); err != nil || len(mended) != objects.HashKeySize || bytes.Equal(mended, first) {
		t.Errorf("after half a key: got %d bytes (%v), want a new one", len(mended), err)
	}
	if disk := t.TempDir(); !atomicfile.InMemory(disk) {
		if key, err := loadOrCreateKey(disk); err != nil || key != nil {
			t.Errorf("on a disk: got %d bytes (%v), want no key", len(key), err)
		}
		if names, err := os.ReadDir(disk); err != nil || len(names) > 0 {
			t.Errorf("on a disk: left %v (%v)", names, err)
		}
	}
}
