package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

type value map[string]string

func TestAFileIsAsItsCodecWritesIt(t *testing.T) {
	for name, tc := range map[string]struct {
		codec Codec
		want  string
	}{
		"no codec": {Codec{}, `{"a":"1"}`},
		"a line":   {JSONLine, `{"a":"1"}` + "\n"},
		"indented": {IndentedJSON, "{\n  \"a\": \"1\"\n}\n"},
		"sealed":   {Checksummed, `{"sha256":"` + Sum([]byte(`{"a":"1"}`)) + `","saved":{"a":"1"}}`},
	} {
		f := File[value]{Path: filepath.Join(t.TempDir(), "made", "file"), Format: Format{Codec: tc.codec}}
		if _, err := f.Read(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: no file: got %v", name, err)
		}
		if err := f.Write(value{"a": "1"}); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(f.Path); err != nil || string(text) != tc.want {
			t.Errorf("%s: got %q, %v, want %q", name, text, err, tc.want)
		}
		if got, err := f.Read(); err != nil || got["a"] != "1" {
			t.Errorf("%s: read %v, %v", name, got, err)
		}
		for range 2 {
			if err := f.Remove(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	raw := File[[]byte]{Path: filepath.Join(t.TempDir(), "raw"), Format: Format{Codec: Raw}}
	if err := raw.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := raw.Read(); err != nil || string(got) != "x" {
		t.Errorf("raw: got %q, %v", got, err)
	}
}

func TestASealedFileIsReadAsItWasWrittenOrNotAtAll(t *testing.T) {
	content, err := Checksummed.Encode(value{"a": "<b>"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"as it was": {content, ""},
		"changed":   {bytes.Replace(content, []byte(`"a"`), []byte(`"b"`), 1), "checksum is wrong"},
		"cut off":   {content[:len(content)-3], "unexpected end"},
		"empty":     {nil, "unexpected end"},
	} {
		f := File[value]{Path: filepath.Join(t.TempDir(), "file.json"), Format: Format{Codec: Checksummed}}
		if err := os.WriteFile(f.Path, tc.content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := f.Read()
		if tc.want == "" && (err != nil || got["a"] != "<b>") || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestModesAreThoseOfTheFormat(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	for _, tc := range []struct {
		format              Format
		file, dir, dirAbove fs.FileMode
	}{
		{Format{}, 0o600, 0o700, 0o711},
		{Format{Mode: 0o640, DirMode: 0o750, Durable: true}, 0o640, 0o750, 0o750},
	} {
		root := t.TempDir()
		f := File[value]{Path: filepath.Join(root, "above", "dir", "file"), Format: tc.format}
		if err := f.Write(value{}); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]fs.FileMode{f.Path: tc.file, filepath.Dir(f.Path): tc.dir, filepath.Join(root, "above"): tc.dirAbove} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: got %v, %v, want %v", path, info.Mode(), err, want)
			}
		}
	}
}

func TestAnUnchangedFileIsWrittenOnlyIfAsked(t *testing.T) {
	for _, skip := range []bool{false, true} {
		f := File[value]{Path: filepath.Join(t.TempDir(), "file"), Format: Format{SkipUnchanged: skip}}
		write := func(v value) fs.FileInfo {
			t.Helper()
			if err := f.Write(v); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(f.Path)
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		first := write(value{"a": "1"})
		if same := write(value{"a": "1"}); os.SameFile(first, same) != skip {
			t.Errorf("SkipUnchanged %t: the file was written again: %t", skip, skip)
		}
		write(value{"a": "2"})
		if got, err := f.Read(); err != nil || got["a"] != "2" {
			t.Errorf("SkipUnchanged %t: after a change: got %v, %v", skip, got, err)
		}
	}
}

func TestALongFileIsNeitherWrittenNorRead(t *testing.T) {
	f := File[value]{Path: filepath.Join(t.TempDir(), "file"), Format: Format{MaxBytes: 12}}
	if err := f.Write(value{"a": "12345"}); err == nil || !strings.Contains(err.Error(), "longer than the limit") {
		t.Errorf("written: %v", err)
	}
	if _, err := os.Stat(f.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
	if err := f.Write(value{"a": "1234"}); err != nil { // 12 bytes
		t.Error(err)
	}
	if _, err := f.Read(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(f.Path, []byte(`{"a":"12345"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(); err == nil || !strings.Contains(err.Error(), "longer than the limit") {
		t.Errorf("read: %v", err)
	}
}

func TestAFileThatAnotherUserCouldHaveWrittenIsRejected(t *testing.T) {
	for name, tc := range map[string]struct {
		obstruct func(path string) error
		want     string // for an owner only
	}{
		"its own": {func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) }, ""},
		"written by a group": {func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chmod(path, 0o620))
		}, "others than podd's user"},
		"written by everyone": {func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chmod(path, 0o602))
		}, "others than podd's user"},
		"a link":      {func(path string) error { return os.Symlink("/dev/null", path) }, "too many levels of symbolic links"},
		"a FIFO":      {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		"a directory": {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
	} {
		f := File[value]{Path: filepath.Join(t.TempDir(), "file"), Format: Format{OwnerOnly: true}}
		if err := tc.obstruct(f.Path); err != nil {
			t.Fatal(err)
		}
		_, err := f.Read()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func TestACheckMayRejectOrCompleteAValue(t *testing.T) {
	f := File[value]{Path: filepath.Join(t.TempDir(), "file"), Check: func(v *value) error {
		if (*v)["bad"] != "" {
			return errors.New("it is bad")
		}
		(*v)["more"] = "x"
		return nil
	}}
	if err := f.Write(value{"a": "1"}); err != nil {
		t.Fatal(err)
	}
	if v, err := f.Read(); err != nil || v["more"] != "x" {
		t.Errorf("got %v, %v", v, err)
	}
	if err := f.Write(value{"bad": "1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(); err == nil {
		t.Error("a bad value was accepted")
	}
	where, err := f.SetAside()
	if err != nil || where != "the file was kept as "+f.Path+".broken" {
		t.Errorf("got %q, %v", where, err)
	}
}

func TestADirectoryHasAFileForEachKey(t *testing.T) {
	for name, tc := range map[string]struct {
		naming Naming
		keys   []string
		want   []string // the keys that ReadAll visits, by those of keys
	}{
		"plain":   {Naming{}, []string{"a", "b"}, []string{"a", "b"}},
		"escaped": {Escaped, []string{"a/b", "c"}, []string{"a/b", "c"}},
		"hashed":  {Hashed("x-", 4), []string{"/m/a", "/m/b"}, []string{Hashed("x-", 4).Name("/m/a"), Hashed("x-", 4).Name("/m/b")}},
	} {
		d := Dir[value]{Path: filepath.Join(t.TempDir(), "dir"), Naming: tc.naming}
		if keys, err := d.Keys(); err != nil || len(keys) != 0 || len(d.ReadAll(func(string, value) { t.Error("found one") })) != 0 {
			t.Errorf("%s: a directory that is missing: got %q, %v", name, keys, err)
		}
		for _, key := range tc.keys {
			if err := d.File(key).Write(value{"key": key}); err != nil {
				t.Fatal(err)
			}
		}
		other := filepath.Join(d.Path, "README")
		if err := errors.Join(os.WriteFile(other, nil, 0o600), os.Mkdir(d.File("of a directory").Path, 0o700)); err != nil {
			t.Fatal(err)
		}
		first := d.File(tc.keys[0]).Path
		if err := os.WriteFile(first+".new", nil, 0o600); err != nil { // an interrupted write
			t.Fatal(err)
		}
		found := map[string]string{}
		if damaged := d.ReadAll(func(key string, v value) { found[key] = v["key"] }); len(damaged) != 0 || len(found) != 2 || found[tc.want[0]] != tc.keys[0] || found[tc.want[1]] != tc.keys[1] {
			t.Errorf("%s: got %v, %+v", name, found, damaged)
		}
		if err := os.Remove(first); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(d.File("of a directory").Path); err != nil {
			t.Fatal(err)
		}
		keys, err := d.Keys()
		slices.Sort(keys)
		want := slices.Sorted(slices.Values(tc.want))
		if err != nil || !slices.Equal(keys, want) {
			t.Errorf("%s: keys %q, %v, want %q", name, keys, err, want)
		}
		for range 2 {
			if err := d.Remove(tc.keys[0]); err != nil {
				t.Error(err)
			}
		}
		if err := d.Retain(func(key string) bool { return key == tc.want[1] }); err != nil {
			t.Error(err)
		}
		entries, err := os.ReadDir(d.Path)
		if err != nil || len(entries) != 1 || filepath.Join(d.Path, entries[0].Name()) != d.File(tc.keys[1]).Path {
			t.Errorf("%s: left %v, %v", name, entries, err)
		}
	}
}

func TestADamagedFileIsToldAndStays(t *testing.T) {
	d := Dir[value]{Path: t.TempDir(), MaxFiles: 3, Check: func(key string, v *value) error {
		if (*v)["key"] != key {
			return errors.New("another's")
		}
		return nil
	}}
	for name, text := range map[string]string{"a.json": `{"key":"a"}`, "b.json": `{"key":`, "c.json": `{"key":"a"}`, "d.json": `{"key":"d"}`} {
		if err := os.WriteFile(filepath.Join(d.Path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	damaged := d.ReadAll(func(key string, _ value) { found = append(found, key) })
	if !slices.Equal(found, []string{"a"}) || len(damaged) != 3 {
		t.Fatalf("got %q and %+v", found, damaged)
	}
	for i, want := range []struct{ path, err string }{
		{d.Path, "there are 4 files, and the first 3 are read"}, {filepath.Join(d.Path, "b.json"), "unexpected end"}, {filepath.Join(d.Path, "c.json"), "another's"},
	} {
		if damaged[i].Path != want.path || !strings.Contains(damaged[i].Err.Error(), want.err) {
			t.Errorf("got %+v, want %+v", damaged[i], want)
		}
	}
	if entries, err := os.ReadDir(d.Path); err != nil || len(entries) != 4 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestWithoutAPathNothingIsKept(t *testing.T) {
	var f File[value]
	var d Dir[value]
	if _, err := f.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	keys, err := d.Keys()
	if err := errors.Join(err, f.Write(value{}), f.Remove(), d.File("a").Write(value{}), d.Remove("a"), d.Retain(func(string) bool { return false })); err != nil || len(keys) != 0 {
		t.Errorf("got %q, %v", keys, err)
	}
	if damaged := d.ReadAll(func(string, value) { t.Error("found one") }); len(damaged) != 0 {
		t.Errorf("got %+v", damaged)
	}
}
