package lastgood

import (
	"os"
	"path/filepath"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestVersionsSurviveAndAreForgotten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	s := New(dir)
	s.Keep("/m/a.yaml", []byte("old"))
	s.Keep("/m/a.yaml", []byte("a"))
	s.Keep("/m/b.yaml", []byte("b"))
	s.Keep("/m/c.yaml", []byte("c"))
	if s.Load("/m/a.yaml") != nil {
		t.Error("written before Flush")
	}
	if err := s.Forget("/m/c.yaml"); err != nil {
		t.Error(err)
	}
	if got := s.Flush(); len(got) != 2 || got["/m/a.yaml"] != nil || got["/m/b.yaml"] != nil {
		t.Errorf("got %v, want two versions written", got)
	}
	if got := s.Flush(); len(got) != 0 {
		t.Errorf("got %v, want nothing to be written twice", got)
	}
	// The name on disk is what it was in every version of podd.
	if _, err := os.Stat(filepath.Join(dir, "ae2218b5aeaeb04f31f3095716687f28")); err != nil {
		t.Errorf("%v: there are %q", err, names(t, dir))
	}
	after := New(dir) // a podd that starts
	if a, b, c := after.Load("/m/a.yaml"), after.Load("/m/b.yaml"), after.Load("/m/c.yaml"); string(a) != "a" || string(b) != "b" || c != nil {
		t.Errorf("got %q, %q, %q", a, b, c)
	}
	if err := os.WriteFile(filepath.Join(dir, "half.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := after.Retain("/m/b.yaml", "/m/none.yaml"); err != nil || len(names(t, dir)) != 1 || string(after.Load("/m/b.yaml")) != "b" {
		t.Errorf("got %v and %q, want that of b.yaml alone", err, names(t, dir))
	}
	if err := after.Forget("/m/b.yaml"); err != nil || len(names(t, dir)) != 0 {
		t.Errorf("got %v and %q, want none", err, names(t, dir))
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("what is kept may hold passwords: %v, %v", fi.Mode(), err)
	}
}

func TestWhatCannotBeWrittenIsSaidOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(dir)
	s.Keep("a", []byte("a"))
	if got := s.Flush(); len(got) != 1 || got["a"] == nil {
		t.Errorf("got %v, want an error for a", got)
	}
	if got := s.Flush(); len(got) != 0 {
		t.Errorf("got %v, want it not tried again", got)
	}
	if err := New(filepath.Join(t.TempDir(), "none")).Retain(); err != nil {
		t.Errorf("a directory that was not needed yet: %v", err)
	}
}

func TestWithoutADirectoryNothingIsKept(t *testing.T) {
	s := New("")
	s.Keep("a", []byte("a"))
	if len(s.Flush()) != 0 || s.Load("a") != nil || s.Forget("a") != nil || s.Retain() != nil {
		t.Error("something was done")
	}
}
