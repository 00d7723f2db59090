package logrotate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogRotationFollowsNoSymlink: a pod with a hostPath of /var/log puts
// symlinks where the logs of containers are. podd compressed what they led to
// into that directory, for the pod to read, and wrote through them.
func TestLogRotationFollowsNoSymlink(t *testing.T) {
	stamp := func(second int) string {
		return "0.log." + time.Date(1999, 12, 31, 23, 0, second, 0, time.UTC).Local().Format(stampFormat)
	}
	for name, plant := range map[string]func(t *testing.T, dir, secret string){
		"the log": func(t *testing.T, dir, secret string) {
			replace(t, secret, filepath.Join(dir, "0.log"))
		},
		"the log, to nowhere": func(t *testing.T, dir, secret string) {
			replace(t, secret+".new", filepath.Join(dir, "0.log"))
		},
		"a rotated file": func(t *testing.T, dir, secret string) {
			replace(t, secret, filepath.Join(dir, stamp(1)))
			replace(t, secret, filepath.Join(dir, stamp(2)))
		},
		"a half-made file": func(t *testing.T, dir, secret string) {
			for s := range 5 { // of files that the next rotations compress
				at := time.Date(2000, 1, 1, 0, 0, 10*(s+1), 0, time.UTC).Local().Format(stampFormat)
				replace(t, secret, filepath.Join(dir, "0.log."+at+".tmp"))
			}
		},
		"the directory": func(t *testing.T, dir, secret string) {
			elsewhere := filepath.Dir(secret)
			for _, f := range []string{"0.log", stamp(1), stamp(2)} {
				if err := os.WriteFile(filepath.Join(elsewhere, f), []byte(strings.Repeat("node\n", 1000)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			replace(t, elsewhere, dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{MaxSize: 1600, MaxFiles: 6}, func(t *testing.T, s *station) {
				s.run(t, "a")
				elsewhere := t.TempDir()
				secret := filepath.Join(elsewhere, "secret")
				text := strings.Repeat("secret\n", 1000)
				if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				plant(t, filepath.Join(s.dir, "a"), secret)
				before := tree(t, elsewhere)
				for range 3 {
					s.write(t, "a", 3200)
					time.Sleep(10 * time.Second)
					synctest.Wait()
				}
				if after := tree(t, elsewhere); !slices.Equal(after, before) {
					t.Errorf("the node's files: got %q, want them as they were, %q", after, before)
				}
				for _, f := range tree(t, filepath.Join(s.dir, "a")) {
					if name, _, _ := strings.Cut(f, " "); strings.HasSuffix(name, ".gz") && strings.Contains(unzip(t, filepath.Join(s.dir, "a", name)), "secret") {
						t.Errorf("%s has a copy of the node's file", name)
					}
				}
			})
		})
	}
}

// replace puts a symlink in place of what is there.
func replace(t *testing.T, target, path string) {
	t.Helper()
	_ = os.Remove(path)
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// tree is each file's name and text.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		out = append(out, e.Name()+" "+string(text))
	}
	return out
}

// TestALogGoesOnlyWhenItsCompressedFormIsOnTheDisk: a power cut between the two
// left neither.
func TestALogGoesOnlyWhenItsCompressedFormIsOnTheDisk(t *testing.T) {
	base := filepath.Join(t.TempDir(), "pod", "container")
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	const file = "0.log.20060102-150405"
	if err := os.WriteFile(filepath.Join(base, file), []byte("a line\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	d, _, err := openDir(filepath.Join(base, "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	var steps []string
	c := newCleaner(3, slog.New(slog.NewTextHandler(io.Discard, nil)), newMetrics(nil))
	c.sync = func(f *os.File) error {
		if !d.there(file) {
			t.Error("the log is gone before its compressed form is safe")
		}
		switch {
		case f == d.file && d.there(file+suffixGzip):
			steps = append(steps, "directory, with the new name")
		case f != d.file && !d.there(file+suffixGzip):
			steps = append(steps, "content")
		}
		return nil
	}
	if err := c.compress(t.Context(), d, file); err != nil {
		t.Fatal(err)
	}
	if want := []string{"content", "directory, with the new name"}; !slices.Equal(steps, want) {
		t.Errorf("forced to the disk: got %v, want %v", steps, want)
	}
	if d.there(file) || unzip(t, filepath.Join(base, file+suffixGzip)) != "a line\n" {
		t.Error("want the compressed file alone")
	}
	// What the disk refuses leaves the log.
	if err := os.WriteFile(filepath.Join(base, file), []byte("more\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	c.sync = func(*os.File) error { return errors.New("no space left") }
	if err := c.compress(context.Background(), d, file); err == nil || !d.there(file) {
		t.Errorf("got %v, want an error and the log", err)
	}
}
