package whole

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lay makes dir a volume with these keys in use.
func lay(t *testing.T, dir, name string, data map[string]string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	for key, text := range data {
		if err := os.WriteFile(filepath.Join(dir, name, key), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_ = os.Symlink("..data/"+key, filepath.Join(dir, key))
	}
	_ = os.Remove(filepath.Join(dir, dataLink))
	if err := os.Symlink(name, filepath.Join(dir, dataLink)); err != nil {
		t.Fatal(err)
	}
}

func TestAWholeVersionIsRead(t *testing.T) {
	dir := t.TempDir()
	for version, mark := range map[int]string{1: "", 2: "seen", 1003: "x"} {
		lay(t, dir, "..v"+mark, Data(version, mark))
		if seen, err := Read(dir); err != nil || seen != (Seen{version, mark}) {
			t.Errorf("%d: got %+v, %v", version, seen, err)
		}
	}
	lay(t, dir, "..none", nil)
	if seen, err := Read(dir); err != nil || seen != (Seen{}) {
		t.Errorf("no keys: got %+v, %v", seen, err)
	}
}

func TestHalfAVersionIsNoticed(t *testing.T) {
	for what, spoil := range map[string]func(data map[string]string){
		"a key of another version":          func(d map[string]string) { d[keyShort] = Data(6, "")[keyShort] },
		"a key cut short":                   func(d map[string]string) { d[keyLong] = d[keyLong][:1000] },
		"an empty key":                      func(d map[string]string) { d[keyLong] = "" },
		"a key is missing":                  func(d map[string]string) { delete(d, keyLong) },
		"no version":                        func(d map[string]string) { delete(d, KeyVersion) },
		"a key of odd ones in an even one":  func(d map[string]string) { d[keyOdd] = "8\nend\n" },
		"its version is another than its":   func(d map[string]string) { d[KeyVersion] = "9\nend\n" },
		"something that was no version":     func(d map[string]string) { d[KeyVersion] = "?" },
		"a short one that is twice as long": func(d map[string]string) { d[keyShort] = strings.Repeat(d[keyShort], 2) },
	} {
		dir, data := t.TempDir(), Data(8, "")
		spoil(data)
		lay(t, dir, "..v", data)
		if seen, err := Read(dir); !errors.Is(err, ErrHalf) {
			t.Errorf("%s: got %+v, %v", what, seen, err)
		}
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, ErrHalf) {
		t.Errorf("no version in use: got %v", err)
	}
}
