package csi

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunEndsWithItsContextsCause(t *testing.T) {
	n := newNode(t, "")
	n.stop()
	why := errors.New("podd ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := n.Run(ctx); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

// Its paths are given to drivers, which must not see another directory by the same name.
func TestTheRootDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) (*Volumes, error) {
		return New(Config{RootDir: path, Cluster: NoCluster, Log: slog.New(slog.DiscardHandler)})
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "root"), link); err != nil {
		t.Fatal(err)
	}
	v, err := at(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(v.root, "plugins")); err != nil || !info.IsDir() {
		t.Errorf("got %v, %v, want a directory for drivers", info, err)
	}
	if v, err := at(link); err != nil || v.root != filepath.Join(dir, "root") {
		t.Errorf("by a link: got %v, %v", v, err)
	}
	for path, want := range map[string]string{
		"file": "make the root directory: ", "loop": "make the root directory: ", "used": "make the directory of CSI drivers: ",
	} {
		switch path = filepath.Join(dir, path); filepath.Base(path) {
		case "file":
			mustWrite(t, path, "")
		case "loop":
			err = os.Symlink("loop", path)
		default:
			mustWrite(t, filepath.Join(path, "plugins"), "")
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := at(path); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
