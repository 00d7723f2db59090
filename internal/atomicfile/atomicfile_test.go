package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(dir, e.Name())) // directories have none
		all[e.Name()] = string(text)
	}
	return all
}

func TestWriteReplacesAndLeavesNothingBeside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	// What a killed podd left is longer than what comes.
	if err := os.WriteFile(path+".new", []byte("half of a long text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if err := Write(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := files(t, dir); len(got) != 1 || got["state.json"] != text {
			t.Errorf("got %q, want %q alone", got, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v (%v), want mode 0600", info, err)
	}
}

func TestWhatIsSetAsideIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	for _, text := range []string{"one", "two"} { // the second time in place of the first
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		where, err := SetAside(path)
		if err != nil || where != "the file was kept as "+path+".broken" {
			t.Errorf("got %q, %v", where, err)
		}
		if err := Write(path, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := files(t, dir); len(got) != 2 || got["state.json.broken"] != text || got["state.json"] != "new" {
			t.Errorf("got %q, want %q set aside", got, text)
		}
	}
}

func TestAFileThatCannotBeSetAsideIsToBeCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".broken", 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	where, err := SetAside(path)
	if err == nil || where != "copy "+path+" before podd overwrites it" {
		t.Errorf("got %q, %v", where, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestAFailedWriteLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("got %q, want the directory alone", got)
	}
	if err := Write(filepath.Join(dir, "none", "x"), nil, 0o600); err == nil {
		t.Error("a file was written into no directory")
	}
}
