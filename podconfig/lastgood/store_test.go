package lastgood

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"podd/internal/atomicfile"
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
	s := New(dir, "")
	s.Put("/m/a.yaml", []byte("old"), false)
	s.Put("/m/a.yaml", []byte("a"), false)
	s.Put("/m/b.yaml", []byte("b"), false)
	s.Put("/m/c.yaml", []byte("c"), false)
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
	after := New(dir, "") // a podd that starts
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

// volatile is a directory in memory, of a store's own.
func volatile(t *testing.T) string {
	t.Helper()
	const shm = "/dev/shm"
	if !atomicfile.InMemory(shm) {
		t.Skipf("%s is no tmpfs here", shm)
	}
	dir, err := os.MkdirTemp(shm, "podd-lastgood-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "kept")
}

func TestASecretIsKeptInMemoryAlone(t *testing.T) {
	dir, memory := filepath.Join(t.TempDir(), "kept"), volatile(t)
	s := New(dir, memory)
	flush := func() {
		t.Helper()
		for origin, err := range s.Flush() {
			if err != nil {
				t.Errorf("%s: %v", origin, err)
			}
		}
	}
	s.Put("a", []byte("a"), false)
	flush()
	s.Put("a", []byte("geheim"), true) // it gains a Secret
	s.Put("b", []byte("b"), false)
	flush()
	if got := names(t, dir); len(got) != 1 || got[0] != naming.Name("b") {
		t.Errorf("on disk: got %q, want that of b alone", got)
	}
	if fi, err := os.Stat(memory); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	after := New(dir, memory) // a podd that starts
	if a, b := after.Load("a"), after.Load("b"); string(a) != "geheim" || string(b) != "b" {
		t.Errorf("got %q, %q", a, b)
	}
	s.Put("a", []byte("a"), false) // and has it no more
	s.Put("c", []byte("geheim"), true)
	flush()
	if got := names(t, memory); len(got) != 1 || got[0] != naming.Name("c") || string(s.Load("a")) != "a" {
		t.Errorf("in memory: got %q, want that of c alone; a is %q", got, s.Load("a"))
	}
	if err := s.Retain("a"); err != nil || len(names(t, memory)) != 0 || len(names(t, dir)) != 1 {
		t.Errorf("got %v, %q in memory, %q on disk", err, names(t, memory), names(t, dir))
	}
	s.Put("c", []byte("geheim"), true)
	flush()
	if err := s.Forget("c"); err != nil || len(names(t, memory)) != 0 {
		t.Errorf("got %v, %q", err, names(t, memory))
	}
}

func TestASecretIsNotKeptOnADisk(t *testing.T) {
	dir, onDisk := t.TempDir(), filepath.Join(t.TempDir(), "state")
	s := New(dir, onDisk)
	s.inMemory = func(string) bool { return false }
	s.Put("a", []byte("a"), false)
	s.Flush()
	for i, want := range []error{errOnDisk, nil} {
		s.Put("a", []byte("geheim"), true)
		if got := s.Flush(); !errors.Is(got["a"], want) || s.HasPending() {
			t.Errorf("time %d: got %v, want %v", i, got, want)
		}
	}
	if len(names(t, dir))+len(names(t, onDisk)) != 0 || s.Load("a") != nil {
		t.Errorf("got %q, %q", names(t, dir), names(t, onDisk))
	}
}

func TestWhatCannotBeWrittenIsSaidOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(dir, "")
	s.Put("a", []byte("a"), false)
	if got := s.Flush(); len(got) != 1 || got["a"] == nil {
		t.Errorf("got %v, want an error for a", got)
	}
	if got := s.Flush(); len(got) != 0 {
		t.Errorf("got %v, want it not tried again", got)
	}
	if err := New(filepath.Join(t.TempDir(), "none"), "").Retain(); err != nil {
		t.Errorf("a directory that was not needed yet: %v", err)
	}
}

func TestWithoutADirectoryNothingIsKept(t *testing.T) {
	s := New("", "")
	s.Put("a", []byte("a"), false)
	if len(s.Flush()) != 0 || s.Load("a") != nil || s.Forget("a") != nil || s.Retain() != nil {
		t.Error("something was done")
	}
}
