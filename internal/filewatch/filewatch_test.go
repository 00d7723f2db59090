package filewatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestChangesAreReported(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(path("a"), 0o700), os.Mkdir(path("b"), 0o700), os.WriteFile(path("b/1"), nil, 0o600),
		os.WriteFile(path("b/2"), nil, 0o600), os.Symlink(path("b/1"), path("a/link"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls, done := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		done <- Watch(ctx, func() []string { return []string{path("a/link"), path("later/file")} }, func() { calls <- struct{}{} })
	}()
	<-calls // it watches
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"what the link leads to changes", func() error { return os.WriteFile(path("b/1"), []byte("x"), 0o600) }},
		{"the link leads elsewhere", func() error {
			return errors.Join(os.Symlink(path("b/2"), path("a/next")), os.Rename(path("a/next"), path("a/link")))
		}},
		{"that changes", func() error { return os.WriteFile(path("b/2"), []byte("x"), 0o600) }},
		{"the other's directory appears", func() error { return os.Mkdir(path("later"), 0o700) }},
		{"and the other", func() error { return os.WriteFile(path("later/file"), nil, 0o600) }},
	} {
		for len(calls) > 0 {
			<-calls
		}
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-calls:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: not reported", step.what)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
